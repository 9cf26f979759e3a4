"""What the docs say about the code is what the code says: generated parts, names, links."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import quiver
from quiver import limits
from quiver.errors import QuiverError
from tools import reference

ROOT = reference.ROOT
PAGES = [*sorted(ROOT.glob("*.md")), *reference.pages()]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2`*\s*$", re.DOTALL | re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_generated_parts_are_current(capsys: pytest.CaptureFixture[str]):
    status = reference.main(["--check"])
    assert status == 0, capsys.readouterr().out + "run: .venv/bin/python tools/reference.py"


def test_check_sees_a_stale_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = tmp_path / "page.md"
    page.write_text("<!-- generated: error-tree -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "pages", lambda: [page])
    assert reference.main(["--check"]) == 1
    assert "old" in page.read_text(), "a check changes nothing"
    assert reference.main([]) == 0
    assert "QuiverError" in page.read_text()
    assert reference.main(["--check"]) == 0


def test_a_place_without_an_end_is_found():
    with pytest.raises(AssertionError, match="no end"):
        reference.filled("<!-- generated: limits -->\n<!-- generated: kinds -->\n<!-- end -->\n")


def test_every_limit_has_a_row():
    table = reference.make_limits("")
    source = inspect.getsource(limits)
    named = re.findall(r"^([A-Z_]+): Final", source, re.MULTILINE)
    assert [name for name in named if f"`{name}`" not in table] == ["KIB", "MIB"]


def test_every_public_name_is_in_the_reference():
    api = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    errors = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    for name in quiver.__all__:
        found = getattr(quiver, name)
        is_error = inspect.isclass(found) and issubclass(found, QuiverError)
        where = errors if is_error else api
        assert re.search(rf"(`|generated: \w+ |^#+ .*\b){name}\b", where, re.MULTILINE), (
            f"{name} is missing"
        )


@pytest.mark.parametrize(
    "owner", ["Queue", "Producer", "Member", "Transaction", "Delivery", "DeliveryBatch"]
)
def test_every_public_method_has_its_signature(owner: str):
    api = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    for name, found in inspect.getmembers(getattr(quiver, owner), inspect.isfunction):
        internal = name.startswith("_") or (owner, name) == ("Transaction", "commit")
        if not internal and (owner, name) != ("Delivery", "json"):
            assert f"<!-- generated: signature {owner}.{name} -->" in api, found


# -- links -----------------------------------------------------------------------------------------


@each_page
def test_links_lead_somewhere(page: Path):
    for text, target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"[{text}]({target}): there is no {found}"
        if anchor:
            assert anchor in anchors(found), f"[{text}]({target}): no such heading"


@each_page
def test_names_linked_to_code_are_there(page: Path):
    for text, target in links(page):
        module = page.parent / target
        if module.suffix == ".py" and re.fullmatch(r"`[\w.]+`", text):
            name = text.strip("`").removeprefix(f"{module.stem}.")
            own = module.parent.name if module.stem == "__init__" else module.stem
            assert name in {own, *defined(module)}, f"{target} has no {name}"


def links(page: Path) -> list[tuple[str, str]]:
    return LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """The headings of a page as they are linked to."""
    titles = re.findall(
        r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def defined(module: Path) -> set[str]:
    """Functions, classes and methods of a module; its path, for links that name that."""
    names = {str(module.resolve().relative_to(ROOT))}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            names |= {f"{node.name}.{function.name}" for function in functions}
    return names
