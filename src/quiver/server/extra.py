"""What a node needs and a client does not: the packages of the extra `server`."""

from importlib.util import find_spec
from typing import Final

from quiver.errors import ExtraMissing
from quiver.storage import system

PACKAGES: Final = ("httptools", "prometheus_client", "starlette", "tomli_w", "uvloop")


def demand_server() -> None:
    """Refuse to be a node where that is not possible, before anything of one is imported."""
    system.demand_supported()
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            f"a node needs packages that are not installed ({', '.join(missing)}): "
            'pip install ".[server]" in a clone of Quiver'
        )
