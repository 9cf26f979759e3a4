"""Write into the docs what the code knows: limits, errors, signatures, metrics, the command line.

A page has places for it:

    <!-- generated: limits -->
    (whatever is between these two lines is replaced)
    <!-- end -->

The word after "generated:" is a function of this file, the rest of the line its argument. Everything
outside such places is written by hand and left alone.

    python tools/reference.py             write all pages anew
    python tools/reference.py --check     change nothing; end with 1 if a page is out of date
"""

import ast
import inspect
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any, get_args

import yaml
from typer.main import get_command

import quiver
from quiver import errors, limits
from quiver.batches.schema import FIELDS
from quiver.cli.app import app
from quiver.model import replies, topic
from quiver.server import metrics
from quiver.server.api.table import ENDPOINTS
from quiver.storage.codec import KINDS

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(r"(<!-- generated: ([\w-]+)(?: ([\w.-]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
FACTORY = re.compile(r" = field\(default_factory=(\w+)\)")
CHOICE = re.compile(r"\b[A-Z][A-Za-z]+\b|'")
SECTION = re.compile(r"# -- (.+?) -+")
LINE_CHARS_MAX = 96
RECEIVERS = {  # how the pages call an object of the class
    "AsyncProducer": "producer",
    "AsyncQueue": "queue",
    "Consumer": "consumer",
    "Delivery": "delivery",
    "DeliveryBatch": "batch",
    "Member": "member",
    "Producer": "producer",
    "Queue": "queue",
    "Record": "record",
    "Transaction": "tx",
}


def pages() -> list[Path]:
    """Every page that may have places to fill."""
    return sorted((ROOT / "docs").rglob("*.md"))


def filled(text: str) -> str:
    """The page with all its places filled."""

    def fill(place: re.Match[str]) -> str:
        assert "<!-- generated:" not in place[0].removeprefix(place[1]), f"no end: {place[1]}"
        made = GENERATORS[place[2]](place[3] or "")
        return f"{place[1]}\n{made.strip()}\n\n{place[4]}"

    return PLACE.sub(fill, text)


# -- limits ----------------------------------------------------------------------------------------


def make_limits(_: str) -> str:
    """A table for each section of limits.py: name, value, reason."""
    source = inspect.getsource(limits)
    comments = dict(comments_of(source))
    sections = sorted((line, found[1]) for line, text in comments.items()
                      if (found := SECTION.match(text)))  # fmt: skip
    parts: list[str] = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name = node.target.id
        while sections and sections[0][0] < node.lineno:
            parts.append(f"\n### {sections.pop(0)[1].capitalize()}\n")
            parts.append("| name | value | reason |\n|---|---:|---|")
        if not parts:  # units, before the first section
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        reason = " ".join(comments[line].lstrip("# ") for line in lines if line in comments)
        parts.append(f"| `{name}` | {shown(name, getattr(limits, name))} | {reason} |")
    return "\n".join(parts)


def shown(name: str, value: int) -> str:
    """A limit with its unit, as a person would say it."""
    if "BYTES" in name:
        for unit, size in (("MiB", limits.MIB), ("KiB", limits.KIB)):
            if value % size == 0 and value < 2**40:
                return f"{value // size:,} {unit}"
        return f"{value:,} bytes"
    unit = next((u for u in ("seconds", "chars", "ms") if u in name.lower().split("_")), "")
    return f"{value:,} {unit}".rstrip()


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


# -- errors ----------------------------------------------------------------------------------------


def make_error_tree(_: str) -> str:
    """The drawing in the docstring of errors.py."""
    drawn = [line for line in (errors.__doc__ or "").splitlines() if line.startswith("    ")]
    return "```text\n" + textwrap.dedent("\n".join(drawn)) + "\n```"


def make_error_table(_: str) -> str:
    """Every error with its code, what it means, and whether to try again."""
    rows = ["| error | code | try again | HTTP | meaning |", "|---|---|---|---:|---|"]
    for error in vars(errors).values():
        if inspect.isclass(error) and issubclass(error, errors.QuiverError):
            again = "yes" if error.retryable else "no"
            meaning = " ".join((error.__doc__ or "").split())
            rows.append(
                f"| `{error.__name__}` | `{error.code}` | {again} | {error.http_status} "
                f"| {meaning} |"
            )
    return "\n".join(rows)


# -- formats ---------------------------------------------------------------------------------------


def make_kinds(_: str) -> str:
    """The numbers of commands in the log."""
    rows = ["| kind | command | meaning |", "|---:|---|---|"]
    for kind, command in KINDS.items():
        meaning = (command.__doc__ or "").partition("\n")[0]
        rows.append(f"| {kind} | `{command.__name__}` | {meaning} |")
    return "\n".join(rows)


def make_columns(_: str) -> str:
    """The columns of a batch, in the order of their bits."""
    rows = ["| bit | column | Arrow type |", "|---:|---|---|"]
    for bit, field in enumerate(FIELDS):
        rows.append(f"| {bit} | `{field.name}` | `{field.type}` |")
    return "\n".join(rows)


# -- signatures ------------------------------------------------------------------------------------


def make_signature(path: str) -> str:
    """What a function or method takes and gives: `connect`, `Queue.send`."""
    holder, _, method = path.rpartition(".")
    found = getattr(getattr(quiver, holder), method) if holder else getattr(quiver, path)
    node = definition(found)
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    called = f"{RECEIVERS.get(holder, f'quiver.{holder}')}.{method}" if holder else f"quiver.{path}"
    if isinstance(node, ast.AsyncFunctionDef) and not inspect.isasyncgenfunction(found):
        called = f"await {called}"
    gives = ast.unparse(node.returns).strip("'\"") if node.returns else "None"
    return f"```py\n{call(called, arguments(node.args), gives)}\n```"


def make_fields(name: str) -> str:
    """A class of plain values, as its source has it, without the docstring."""
    source = textwrap.dedent(inspect.getsource(getattr(quiver, name)))
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    lines = source.splitlines()
    body = [
        FACTORY.sub(r" = \1()", line)
        for item in fields
        for line in lines[item.lineno - 1 : item.end_lineno]
    ]
    return f"```py\nclass {name}:\n" + "\n".join(body) + "\n```"


def definition(found: Any) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]


def arguments(spec: ast.arguments) -> list[str]:
    """Each argument as written in a signature; `self` is left out."""
    plain = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults))
    defaults += spec.defaults
    made = [
        argument(arg, default)
        for arg, default in zip(plain, defaults, strict=True)
        if arg.arg != "self"
    ]
    if spec.kwonlyargs:
        made.append("*")
    for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        made.append(argument(arg, default))
    if spec.kwarg is not None:
        made.append(f"**{argument(spec.kwarg, None)}")
    return made


def argument(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f": {CHOICE.sub(words, ast.unparse(arg.annotation))}" if arg.annotation else ""
    value = f" = {written(default)}" if default is not None else ""
    return f"{arg.arg}{kind}{value}"


def words(choice: re.Match[str]) -> str:
    """A choice with the words that there are instead of its name."""
    allowed = ", ".join(
        f'"{word}"'
        for word in get_args(getattr(topic, choice[0], getattr(replies, choice[0], None)))
    )
    return f"Literal[{allowed}]" if allowed else choice[0].replace("'", '"')


def written(default: ast.expr) -> str:
    """A default value; named limits are shown as their number."""
    text = ast.unparse(default)
    if text.startswith("limits."):
        return f"{getattr(limits, text.removeprefix('limits.')):_}"
    return text.replace("'", '"')


def call(name: str, args: list[str], gives: str) -> str:
    line = f"{name}({', '.join(args)}) -> {gives}"
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{name}(\n" + "".join(f"    {arg},\n" for arg in args) + f") -> {gives}"


# -- the command line ------------------------------------------------------------------------------


def make_cli(_: str) -> str:
    """Every command: what it does, how it is called, what it takes, examples."""
    return "\n\n".join(commands("quiver", get_command(app)))


def commands(name: str, command: Any) -> Iterator[str]:
    """The command and, if it is a group of commands, those in it."""
    parts = [f"## `{name}`" if name.count(" ") < 2 else f"### `{name}`", command.help or ""]
    taken = [param for param in command.params if param.name != "help" and not param.hidden]
    plain = [param for param in taken if not param.opts[0].startswith("-")]
    options = [param for param in taken if param.opts[0].startswith("-")]
    subs = getattr(command, "commands", {})
    if subs:
        names = ", ".join(f"`{sub}`" for sub in command.list_commands(None))
        parts.append(f"Commands: {names}.")
    else:
        used = [usage(param) for param in plain] + (["[options]"] if options else [])
        parts.append(f"```text\n{' '.join([name, *used])}\n```")
    if taken:
        rows = [f"| {written_option(param)} | {meaning(param)} |" for param in [*plain, *options]]
        parts.append("\n".join(["| | |", "|---|---|", *rows]))
    parts += notes(command.epilog or "")
    yield "\n\n".join(part for part in parts if part)
    for sub in command.list_commands(None) if subs else ():
        yield from commands(f"{name} {sub}", subs[sub])


def usage(param: Any) -> str:
    word = (param.metavar or param.name).upper()
    return word if param.required else f"[{word}{'...' if param.nargs == -1 else ''}]"


def written_option(param: Any) -> str:
    if not param.opts[0].startswith("-"):
        return f"`{(param.metavar or param.name).upper()}`"
    value = "" if param.is_flag else f" {(param.metavar or param.name).upper()}"
    return ", ".join(f"`{name}{value}`" for name in [*param.opts, *param.secondary_opts])


def meaning(param: Any) -> str:
    text = (param.help or "").replace("|", r"\|")
    plain = param.default is None or isinstance(param.default, bool) or callable(param.default)
    if not plain and param.default != ():
        text += f" Default: `{param.default}`."
    if param.envvar:
        text += f" Also from `{param.envvar}`."
    return text.strip()


def notes(epilog: str) -> Iterator[str]:
    """The foot of a help page, without its markup: examples as a block, the rest as text."""
    for paragraph in re.sub(r"\[/?(?:bold|dim)\]", "", epilog).replace(r"\[", "[").split("\n\n"):
        title, _, lines = paragraph.partition("\n")
        if title == "Examples":
            yield f"```text\n{textwrap.dedent(lines)}\n```"
        elif paragraph:
            yield " ".join(paragraph.split())


# -- metrics ---------------------------------------------------------------------------------------


def make_metrics(labels: str) -> str:
    """A table of the metrics with just these labels, in their order: `topic.group`."""
    wanted = tuple(label for label in labels.split(".") if label != "none")
    found = [family for family in metrics.FAMILIES if family.labels == wanted]
    rows = [f"| `{one.name}` | {one.kind} | {one.meaning} |" for one in found]
    return "\n".join(["| name | kind | meaning |\n|---|---|---|", *rows])


def make_sqs(part: str) -> str:
    """What there is of SQS, and the tests that show it."""
    from tools import sqs  # noqa: PLC0415  # when run as a script, it is found only then

    names: list[str] = getattr(sqs, part.replace("-", "_"))()
    return sqs.table(names)


def make_endpoints(_: str) -> str:
    """The native door: every endpoint, what it needs, and whether it speaks Arrow."""
    rows = ["| request | verb | what | Arrow |", "|---|---|---|---|"]
    for endpoint in ENDPOINTS:
        arrow = ", ".join(
            word for word, has in (("in", endpoint.arrow_in), ("out", endpoint.arrow_out)) if has
        )
        rows.append(
            f"| `{endpoint.method} {endpoint.path}` | {endpoint.verb or ''} | {endpoint.summary} "
            f"| {arrow} |"
        )
    return "\n".join(rows) + "\n"


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def make_alerts(_: str) -> str:
    """A table of the alert rules: when they fire, and what to do."""
    rows = ["| alert | severity | after | what it means | what to do |\n|---|---|---|---|---|"]
    for rule in alert_rules():
        if "alert" in rule:
            said = rule["annotations"]
            rows.append(f"| {rule['alert']} | {rule['labels']['severity']} | {rule.get('for', '0m')} "
                        f"| {said['description']} | {said['action']} |")  # fmt: skip
    return "\n".join(rows)


def make_thresholds(_: str) -> str:
    """A table of the numbers that alerts compare with."""
    severities = ("info", "warning", "critical")
    found: dict[str, dict[str, str]] = {}
    for rule in alert_rules():
        if rule.get("record") == "quiver:threshold":
            labels = rule["labels"]
            number = rule["expr"].removeprefix("vector(").removesuffix(")")
            found.setdefault(labels["measure"], {})[labels["severity"]] = number
    rows = [f"| measure | {' | '.join(severities)} |\n|---|---:|---:|---:|"]
    rows += [f"| `{measure}` | {' | '.join(numbers.get(one, '') for one in severities)} |"
             for measure, numbers in found.items()]  # fmt: skip
    return "\n".join(rows)


GENERATORS: dict[str, Callable[[str], str]] = {
    "limits": make_limits,
    "endpoints": make_endpoints,
    "error-tree": make_error_tree,
    "error-table": make_error_table,
    "signature": make_signature,
    "fields": make_fields,
    "kinds": make_kinds,
    "columns": make_columns,
    "cli": make_cli,
    "metrics": make_metrics,
    "alerts": make_alerts,
    "thresholds": make_thresholds,
    "sqs": make_sqs,
}


def main(argv: list[str]) -> int:
    """Fill all pages, or with --check say which are out of date."""
    if argv not in ([], ["--check"]):
        print(__doc__)
        return 2
    stale = 0
    for page in pages():
        old = page.read_text(encoding="utf-8")
        new = filled(old)
        if new == old:
            continue
        stale += 1
        if argv:
            name = str(page.relative_to(ROOT))
            print(*unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm=""),
                  sep="\n")  # fmt: skip
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
    if argv and stale:
        print(f"{stale} pages are out of date: run python tools/reference.py")
    return 1 if argv and stale else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
