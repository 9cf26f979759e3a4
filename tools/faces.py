"""Makes the verbs for threads of the verbs for event loops, so that they are written once.

`python tools/faces.py` writes `client/sync_verbs.py`; `--check` says whether that is what it should be.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).parent.parent / "src" / "quiver" / "client"
WRITTEN = CLIENT / "async_verbs.py"
MADE = CLIENT / "sync_verbs.py"

DOCSTRING = '''"""The verbs of a queue: each a flow, driven in the caller's thread.

Generated from `async_verbs.py` by `tools/faces.py`: change that file, then run it.
"""'''

REPLACED = [
    (r"\A\"\"\".*?\"\"\"", DOCSTRING),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\b__a(enter|exit)__", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"`async with`", "`with`"),
    (r"\bquiver\.client\.tasks\b", "quiver.client.threads"),
]


def made(text: str) -> str:
    """The verbs for threads, formatted as all code is."""
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(MADE), "-"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I"], ["format", "--quiet"]):
        done = subprocess.run(  # noqa: S603
            [*ruff, *command, *name], input=text, capture_output=True, text=True, check=True
        )
        text = done.stdout
    return text


def main() -> None:
    """Write the file, or say that it is not what it should be."""
    text = made(WRITTEN.read_text())
    if "--check" not in sys.argv:
        MADE.write_text(text)
    elif MADE.read_text() != text:
        sys.exit(f"{MADE.name} is not what {WRITTEN.name} makes: run python tools/faces.py")


if __name__ == "__main__":
    main()
