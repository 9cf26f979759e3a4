"""Finds what must not cross the seams of the code: closures in requests, private names of others, and names
of classes that mean two things.

    python tools/seam.py src/quiver

- What is asked or told of a broker, a shard or a replica is a value. A lambda, a function made on the
  spot or a `partial` could not go to another process.
- A class has a name of its own. Only the consensus core keeps the words of its paper.
- A name that begins with "_" belongs to its module, and in an attribute to its package: the first part
  of a module's name below `quiver`. Only names that are ours count; what a library calls "_x" is its
  own affair.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

REQUESTS = (
    "ask", "give_back", "propose", "receive", "send_batch", "send_row", "settle", "submit", "transact",
    "watch",
)  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WITH_WORDS_OF_THEIR_OWN = ("raft",)
POOLS = ("pool",)  # of threads, which take functions: their `submit` is no request


def faults(root: Path) -> list[str]:
    """What is wrong in the modules below a package, a line for each."""
    modules = {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    owners: dict[str, set[str]] = {}
    classes: dict[str, Path] = {}
    for path, tree in modules.items():
        for name in _private_members(tree):
            owners.setdefault(name, set()).add(_package(root, path))
    return [
        f"{path}:{line}: {what}"
        for path, tree in modules.items()
        for line, what in sorted(
            [
                *_closures(tree),
                *_private_imports(tree, root.name),
                *_private_access(tree, _package(root, path), owners),
                *(
                    []
                    if _package(root, path) in WITH_WORDS_OF_THEIR_OWN
                    else _named_twice(tree, path, classes)
                ),
            ]
        )
    ]


def _package(root: Path, path: Path) -> str:
    return path.relative_to(root).parts[0]


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _private_members(tree: ast.AST) -> Iterator[str]:
    """Private names that a module gives to members of classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()) if _private(name):
                yield name
            case ast.ClassDef(body=members):
                yield from filter(_private, map(_defined, members))


def _defined(member: ast.stmt) -> str:
    match member:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _named_twice(tree: ast.AST, path: Path, classes: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Classes whose name another module has, too; `classes` has those that were seen."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            other = classes.setdefault(node.name, path)
            if other != path:
                yield node.lineno, f"{node.name} is a class of {other}, too: one word, one thing"


def _private_access(
    tree: ast.AST, package: str, owners: dict[str, set[str]]
) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and package not in owners.get(node.attr, {package}):
            yield node.lineno, f".{node.attr} is private to {', '.join(sorted(owners[node.attr]))}"


def _private_imports(tree: ast.AST, ours: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == ours:
            for name in node.names:
                if _private(name.name):
                    yield node.lineno, f"{name.name} is private to {node.module}"


def _closures(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Requests that are given a function which is made on the spot."""
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))]:
        nested = {node.name for node in _own(scope) if isinstance(node, FUNCTIONS)}
        if isinstance(scope, ast.Module):
            nested = set()
        for node in _own(scope):
            if isinstance(node, ast.Call) and _is_request(node):
                given = [*node.args, *(keyword.value for keyword in node.keywords)]
                if any(_is_closure(one, nested) for value in given for one in ast.walk(value)):
                    yield node.lineno, "a request has a closure: make it a query or command"


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """What is in a scope, and not in the functions inside it."""
    todo = list(ast.iter_child_nodes(scope))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, FUNCTIONS):
            todo += ast.iter_child_nodes(node)


def _is_request(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=name)) if name in POOLS:
            return False
        case ast.Attribute(attr=name):
            return name in REQUESTS
    return False


def _is_closure(node: ast.AST, nested: set[str]) -> bool:
    match node:
        case ast.Lambda():
            return True
        case ast.Name(id=name):
            return name in nested or name == "partial"
    return False


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
