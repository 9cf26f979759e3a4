"""Every disk that a test of the log should hold on."""

import pytest

from quiver.storage.files import DiskFiles, Files
from quiver.testing import MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def files(request, tmp_path) -> Files:
    return DiskFiles(tmp_path) if request.param == "disk" else MemoryFiles()
