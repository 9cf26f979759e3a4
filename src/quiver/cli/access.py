"""`quiver access`: who may use a node: list, add, remove, new tokens, new AWS keys."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from quiver.cli import output
from quiver.cli.directory import require_directory
from quiver.cli.options import DATA, Directory, Json, Yes, epilog
from quiver.cli.verbs import CommandVerbs
from quiver.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quiver.server.auth.access import AccessEntry, Key, Token

    Credential = TypeVar("Credential", Token, Key)

app = typer.Typer(
    cls=CommandVerbs,
    help="Say who may use a node: principals, with tokens or AWS keys, rules and quotas.",
    epilog=epilog(
        [
            "quiver access add billing --allow 'send,receive:orders.*'",
            "quiver access list",
            "quiver access token billing --overlap 1h",
        ],
        "All of it is in one file, access.toml of the data directory, which a running node reads again "
        "when it changes. With no such file a node is open to everybody who can reach it.",
    ),
)

Name = Annotated[str, typer.Argument(help="The principal's name.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="The access file, if it is not in the data directory."),
]
Expires = Annotated[
    str | None, typer.Option(metavar="DURATION", help="When it ends: 30d, 12h. Never if not said.")
]
Overlap = Annotated[
    str, typer.Option(metavar="DURATION", help="How long the ones before it stay good: 1h, 7d.")
]


@app.command("list", epilog=epilog(["quiver access", "quiver access list --json"]))
def list_principals(as_json: Json = False, file: File = None, data: Directory = DATA) -> None:
    """List the principals, what they may do, and when their tokens and keys end."""
    from quiver.server.auth import access

    path = _path(file, data)
    principals = access.load(path).principals if path.exists() else None
    if as_json:
        output.document([_public(name, entry) for name, entry in (principals or {}).items()])
    elif principals is None:
        output.note(f"There is no {path}: a node is open to everybody who can reach it.")
    elif not principals:
        output.note(
            f"{path} names nobody: a node lets nobody in. To add somebody: quiver access add"
        )
    else:
        table = output.table("principal", "allow", "deny", "tokens", "keys", "quota")
        for name, entry in principals.items():
            table.add_row(
                name, _lines(entry.allow), _lines(entry.deny),
                _lines(map(_credential, entry.tokens)), _lines(map(_credential, entry.keys)),
                _lines(_quota(entry)),
            )  # fmt: skip
        output.show(table)


@app.command(
    epilog=epilog(
        [
            "quiver access add billing --allow 'send,receive:orders.*'",
            "quiver access add grafana --allow 'observe:*' --expires 365d",
            "quiver access add batch --allow '*:*' --deny 'manage:*' --requests 100 --bytes 10MB",
        ],
        "A rule is verbs, a colon and topics. Verbs: send, receive (and settle), read (replay, "
        "ledger, SQL, dead letters), observe (statistics, names, metrics), manage (make, change, "
        "delete, purge, seek, redrive), or *. Topics: a name, or the start of names and a *. What "
        "nothing allows is refused, and deny wins.",
    )
)
def add(
    name: Name,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="What it may do. Several are possible.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="What it may not do, whatever else.")
    ] = None,
    expires: Expires = None,
    requests: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, max=1e9, help="How many requests a second."),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--bytes", metavar="SIZE", help="How many bytes a second, both ways: 10MB."),
    ] = None,
    polls: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="How many receives may wait at a time.")
    ] = None,
    as_json: Json = False,
    file: File = None,
    data: Directory = DATA,
) -> None:
    """Add a principal, and show its token: it is not kept, so it is shown only now."""
    from quiver.server.auth import access

    path = _path(file, data)
    text, token = access.new_token(_moment(expires, "expires"))
    entry = access.AccessEntry(
        allow=tuple(allow or ()),
        deny=tuple(deny or ()),
        tokens=(token,),
        requests_per_second=requests,
        bytes_per_second=_rate(size),
        long_polls=polls,
    )
    with access.changing(path) as principals:
        if access.check_name(name) in principals:
            raise InvalidRequest(
                f"principal {name} is there already. For a new token: quiver access token {name}. To "
                f"change its rules: edit {path}, or remove it first"
            )
        principals[name] = entry
    _show_token(name, text, token, path, as_json=as_json)
    if not entry.allow:
        output.note(
            f"{name} may do nothing: no rule allows it anything. Add rules to {path}, or remove {name} "
            "and add it again with --allow."
        )


@app.command(epilog=epilog(["quiver access remove billing --yes"]))
def remove(
    name: Name, yes: Yes = False, as_json: Json = False, file: File = None, data: Directory = DATA
) -> None:
    """Remove a principal, with all its tokens and keys."""
    from quiver.server.auth import access

    path = _path(file, data)
    _known(name, access.load(path).principals if path.exists() else {}, path)
    output.confirm(f"Remove {name}? Its tokens and keys end at once.", yes=yes)
    with access.changing(path) as principals:
        _known(name, principals, path)
        del principals[name]
    if as_json:
        output.document({"principal": name, "removed": True})
    else:
        output.say(f"Removed {name} from {path}.")


@app.command(
    epilog=epilog(["quiver access token billing", "quiver access token billing --overlap 1h"])
)
def token(
    name: Name,
    overlap: Overlap = "0s",
    expires: Expires = None,
    as_json: Json = False,
    file: File = None,
    data: Directory = DATA,
) -> None:
    """Give a principal a new token, and show it; the ones before it end, now or a little later."""
    from msgspec.structs import replace

    from quiver.server.auth import access

    path = _path(file, data)
    text, made = access.new_token(_moment(expires, "expires"))
    with access.changing(path) as principals:
        entry = _known(name, principals, path)
        principals[name] = replace(entry, tokens=(*_ending(entry.tokens, overlap), made))
    _show_token(name, text, made, path, as_json=as_json)


@app.command(epilog=epilog(["quiver access key billing", "quiver access key billing --overlap 7d"]))
def key(
    name: Name,
    overlap: Overlap = "0s",
    expires: Expires = None,
    as_json: Json = False,
    file: File = None,
    data: Directory = DATA,
) -> None:
    """Give a principal a new key for AWS clients, and show it; the ones before it end."""
    from msgspec.structs import replace

    from quiver.server.auth import access

    path = _path(file, data)
    made = access.new_key(_moment(expires, "expires"))
    with access.changing(path) as principals:
        entry = _known(name, principals, path)
        principals[name] = replace(entry, keys=(*_ending(entry.keys, overlap), made))
    if as_json:
        shown = {"access_key_id": made.id, "secret_access_key": made.secret}
        output.document({"principal": name, **shown, "expires": _iso(made)})
        return
    output.say(f"AWS_ACCESS_KEY_ID={made.id}")
    output.say(f"AWS_SECRET_ACCESS_KEY={made.secret}")
    output.note(
        f"This is the key of {name}{_until(made)}. {path} has its secret too, since signatures are "
        "checked with it: let nobody else read that file."
    )


# -- helpers ---------------------------------------------------------------------------------------


def _path(file: Path | None, data: Path) -> Path:
    from quiver.server.auth import ACCESS_FILE

    if file is not None:
        return file
    require_directory(data, "who may use a node is written in its directory")
    return data / ACCESS_FILE


def _known(name: str, principals: "dict[str, AccessEntry]", path: Path) -> "AccessEntry":
    if name not in principals:
        names = f" It names {', '.join(sorted(principals)[:10])}." if principals else ""
        raise InvalidRequest(f"there is no {name[:64]!r} in {path}.{names}")
    return principals[name]


def _moment(duration: str | None, what: str) -> datetime | None:
    """So long from now, in whole seconds."""
    from quiver.model.units import milliseconds

    if duration is None:
        return None
    seconds = time.time() + milliseconds(duration, what) / 1000
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{what} is too far away") from None


def _rate(size: str | None) -> int | None:
    from quiver.model.units import size_bytes

    rate = size_bytes(size, "bytes") if size is not None else None
    if rate == 0:
        raise InvalidRequest("bytes must be more than 0")
    return rate


def _ending(credentials: "tuple[Credential, ...]", overlap: str) -> "list[Credential]":
    """Those that are still good, none of them for longer than `overlap` from now."""
    from msgspec.structs import replace

    now, end = _moment("0s", "now"), _moment(overlap, "overlap")
    assert now is not None
    assert end is not None
    ending = [replace(each, expires=min(each.expires or end, end)) for each in credentials]
    return [each for each in ending if each.expires is not None and each.expires > now]


def _show_token(name: str, text: str, made: "Token", path: Path, *, as_json: bool) -> None:
    if as_json:
        output.document({"principal": name, "token": text, "expires": _iso(made)})
        return
    output.say(text)
    output.note(
        f"This is the token of {name}{_until(made)}. It is shown only now: {path} has a hash of it."
    )


def _until(made: "Token | Key") -> str:
    return f", until {made.expires:%Y-%m-%d %H:%M:%S} UTC" if made.expires else ""


def _iso(made: "Token | Key") -> str | None:
    return made.expires.isoformat() if made.expires else None


def _credential(made: "Token | Key") -> str:
    return f"{made.id}{_until(made)}"


def _quota(entry: "AccessEntry") -> list[str]:
    shares = []
    if entry.requests_per_second is not None:
        shares.append(f"{entry.requests_per_second:g} requests/s")
    if entry.bytes_per_second is not None:
        shares.append(f"{output.size(entry.bytes_per_second)}/s")
    if entry.long_polls is not None:
        shares.append(f"{entry.long_polls:,} waiting")
    return shares


def _lines(texts: "Iterable[str]") -> str:
    return "\n".join(texts) or "-"


def _public(name: str, entry: "AccessEntry") -> dict[str, Any]:
    """All but the secrets."""
    return {
        "principal": name,
        "allow": entry.allow,
        "deny": entry.deny,
        "tokens": [{"id": each.id, "expires": _iso(each)} for each in entry.tokens],
        "keys": [{"id": each.id, "expires": _iso(each)} for each in entry.keys],
        "requests_per_second": entry.requests_per_second,
        "bytes_per_second": entry.bytes_per_second,
        "long_polls": entry.long_polls,
    }
