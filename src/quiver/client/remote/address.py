"""`quiver://[token@]host:port[,host:port…][?ca=…&patience=…&wire=…]`: where nodes are, and who we are.

`quivers://` is with TLS. `http://` and `https://` mean the same, with the ports that these have.
`wire` says whether to use the binary protocol: "auto" (if it gets through), "always" or "never".
"""

import ipaddress
import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from quiver import limits
from quiver.errors import InvalidRequest
from quiver.model.units import milliseconds

PORTS: Final = {"quiver": 7070, "quivers": 7070, "http": 80, "https": 443}  # where none is given
SCHEMES: Final = tuple(f"{scheme}://" for scheme in PORTS)
SECURE: Final = ("quivers", "https")
TOKEN: Final = "QUIVER_TOKEN"  # noqa: S105  # the name of a variable
EXAMPLE: Final = "quiver://127.0.0.1:7070"

Wired = Literal["auto", "always", "never"]
WIRED: Final[tuple[Wired, ...]] = get_args(Wired)


@dataclass(frozen=True, slots=True)
class Address:
    """Nodes that hold the same queue, and how to talk to them."""

    hosts: tuple[str, ...]  # host:port
    secure: bool = False
    token: str | None = field(default=None, repr=False)
    ca: str | None = None  # a file with the certificates to trust instead of the system's
    patience_seconds: float = limits.PATIENCE_REMOTE_SECONDS
    open_seconds: float = limits.OPEN_REMOTE_SECONDS  # the patience of connecting
    wire: Wired = "auto"

    def __str__(self) -> str:
        """What may be shown: where it is, without the token."""
        return f"{'quivers' if self.secure else 'quiver'}://{','.join(self.hosts)}"

    @property
    def local(self) -> bool:
        """Whether all nodes are on this machine, so that compression would cost more than it saves."""
        return all(_is_loopback(host.rpartition(":")[0].strip("[]")) for host in self.hosts)

    def tls(self) -> ssl.SSLContext | None:
        """What TLS trusts."""
        if not self.secure:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise InvalidRequest(f"ca={self.ca!r} cannot be used: {error}") from None


def is_address(text: str) -> bool:
    """Whether this means nodes, and not a directory."""
    return text.lower().startswith(SCHEMES)


def parse(url: str, environment: Mapping[str, str] = os.environ) -> Address:
    """The address that a text stands for; errors never repeat it, for it may have a token."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError as error:
        raise InvalidRequest(f"that is not an address such as {EXAMPLE}: {error}") from None
    unknown = options.keys() - {"ca", "token", "patience", "wire"}
    if unknown or parts.path.strip("/") or parts.fragment:
        raise InvalidRequest(
            f"an address is {EXAMPLE}, with further nodes after commas, and ca=, token=, patience= and "
            "wire= after a question mark"
        )
    user, _, hosts = parts.netloc.rpartition("@")
    name, _, secret = user.partition(":")
    token = options.get("token") or unquote(secret or name) or environment.get(TOKEN)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InvalidRequest("a token has other characters than those that a header can carry")
    patience = limits.PATIENCE_REMOTE_SECONDS, limits.OPEN_REMOTE_SECONDS
    if "patience" in options:
        patience = (milliseconds(options["patience"], "patience") / 1000,) * 2
    wired = [known for known in WIRED if known == options.get("wire", "auto")]
    if not wired:
        raise InvalidRequest(f"wire must be {' or '.join(WIRED)}, not {options['wire'][:80]!r}")
    return Address(
        tuple(_host(host, PORTS[parts.scheme]) for host in hosts.split(",")),
        parts.scheme in SECURE,
        token or None,
        options.get("ca"),
        *patience,
        wired[0],
    )


def _host(text: str, usual: int) -> str:
    host, port = None, None
    if all(char.isalnum() or char in "-._:[]" for char in text):
        with suppress(ValueError):
            parts = urlsplit(f"//{text}")
            (parts.hostname or "").encode("idna")  # as looking it up does: labels of 1 to 63 bytes
            host, port = parts.hostname, parts.port
    if not host:
        raise InvalidRequest(f"{text[:80]!r} is not host:port; an address is {EXAMPLE}")
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{usual if port is None else port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
