"""What the pages about Spark show works as shown, in the session that the tests share."""

import shutil
from pathlib import Path

import pytest

from tests.docs.test_snippets import ROOT, pages, run_page

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.slow]  # what a page starts is this one


@pytest.mark.parametrize("page", pages(spark=True), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_works_as_shown(page: Path, workplace: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(workplace)
    for other in workplace.iterdir():  # of a page before
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    run_page(page)
