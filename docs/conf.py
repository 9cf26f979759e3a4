"""How `make docs` makes a searchable site of the pages.

The root of the project is the source, so that links work on the site as they do in a clone. A link
that leads nowhere, a page that is in no part of the contents and a block that cannot be read are
errors.
"""

import shutil
from pathlib import Path

project = "Quiver"
html_title = "Quiver"
html_theme = "furo"  # one column to read, light and dark, and no fonts or scripts from elsewhere
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/**/*.md", "examples/**/*.md"]
myst_heading_anchors = 4  # links name headings as they do on a page of a forge
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # shell sessions of HTTP, and CSV
html_show_copyright = False
html_show_sphinx = False

CONTENTS = {
    "Begin": ["docs/start", "docs/choose", "docs/faq"],
    "Concepts": ["docs/concepts/*"],
    "The node": [
        *("docs/node", "docs/http", "docs/sqs", "docs/security", "docs/observe"),
        *("docs/backup", "docs/kubernetes", "docs/upgrade", "docs/benchmarks"),
    ],
    "Spark": ["docs/spark", "docs/pipeline", "docs/analytics", "examples/*/README"],
    "Reference": ["docs/reference/*", "CHANGELOG"],
    "Inside": ["ARCHITECTURE", "CONTRIBUTING", "docs/decisions/README", "docs/decisions/0*"],
}


def add_contents(app, docname, source):
    """Give the first page the contents, which a clone has in its folders."""
    if docname == root_doc:
        for caption, pages in CONTENTS.items():
            head = f"```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n"
            source[0] += "\n\n" + head + "\n".join(pages) + "\n```\n"


def make_index(app, failure):
    """The first page is also what a web server shows for the folder."""
    if failure is None:
        shutil.copy(Path(app.outdir, f"{root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app):
    """What Sphinx calls."""
    app.connect("source-read", add_contents)
    app.connect("build-finished", make_index)
