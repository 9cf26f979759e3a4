"""The guard at the door: from the credentials of a request to a principal."""

import hmac
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quiver.errors import InvalidRequest, Unauthenticated
from quiver.limits import AUTHORIZATION_BYTES_MAX, REFUSALS_LOG_SECONDS, RIGHTS_KNOWN_MAX
from quiver.server import logs
from quiver.server.auth import access, sigv4
from quiver.server.auth.principal import ANYBODY, Principal, Verb
from quiver.server.auth.quotas import Meter
from quiver.server.auth.sigv4 import Claim
from quiver.storage.files import translated

if TYPE_CHECKING:  # `quiver access` needs no web framework
    from starlette.types import Scope

Clock = Callable[[], float]  # seconds

PRINCIPAL: Final = "quiver.principal"  # the key of a scope


@dataclass(frozen=True, slots=True)
class Credential:
    """Whose a token or key is, until when, and what it is checked with."""

    principal: Principal
    secret: str = field(repr=False)  # a key's secret, or the hash of a token
    ends_at: float  # seconds since 1970

    @classmethod
    def of(cls, principal: Principal, secret: str, expires: datetime | None) -> "Credential":
        return cls(principal, secret, expires.timestamp() if expires else float("inf"))


@dataclass(frozen=True, slots=True)
class Roll:
    """Everybody whom the node knows, by the ids of their tokens and keys."""

    principals: dict[str, Principal]
    tokens: dict[str, Credential]
    keys: dict[str, Credential]


class Guard:
    """Knows the principals of an access file. Without a file, everybody is `ANYBODY`, who may all.

    A request that is recognised is also counted: see `quotas`. `refresh` may be called by another
    thread; all else belongs to the loop.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        required: bool = False,
        wall_clock: Clock = time.time,  # the default; tests pass another
        clock: Clock = time.monotonic,
    ) -> None:
        """Read the file. One that is not `required` may come later: the node is open until then."""
        self._path = path
        self._wall_clock = wall_clock
        self._clock = clock
        self._refusals = Refusals(clock)
        self._roll: Roll | None = None
        if path is not None and self._exists(path):
            self._roll = self._read(path)
        elif required:
            raise InvalidRequest(f"there is no access file {path}: make one with quiver access add")

    @property
    def open(self) -> bool:
        """No credentials are configured; such a node listens on loopback only."""
        return self._roll is None

    @property
    def files(self) -> list[Path]:
        """What to watch for changes."""
        return [self._path] if self._path is not None else []

    def refresh(self) -> None:
        """Read the file again; if it is wrong, raise and go on with what was known before."""
        if self._path is not None and (self._exists(self._path) or not self.open):
            self._roll = self._read(self._path)
            logs.event("access read", file=str(self._path), principals=len(self._roll.principals))

    @staticmethod
    def _exists(path: Path) -> bool:
        with translated(path):
            return path.exists()

    def _read(self, path: Path) -> Roll:
        known = self._roll.principals if self._roll is not None else {}
        roll = Roll({}, {}, {})
        for name, entry in access.load(path).principals.items():
            allow, deny = entry.rules()
            meter = Meter(entry.quota(), self._clock)
            if name in known and known[name].meter.quota == meter.quota:
                meter = known[name].meter  # reading the file again gives nobody a new share
            principal = roll.principals[name] = Principal(name, allow, deny, meter)
            for token in entry.tokens:
                roll.tokens[token.id] = Credential.of(principal, token.hash, token.expires)
            for key in entry.keys:
                roll.keys[key.id] = Credential.of(principal, key.secret, key.expires)
        return roll

    # -- who asks ----------------------------------------------------------------------------------

    def by_token(self, scope: "Scope") -> Principal:
        """Who sent this request, by its `Authorization: Bearer` header."""
        roll = self._roll
        if roll is None:
            return ANYBODY
        with self._refusals:
            credential = self._token_of(scope, roll)
        return self._admit(credential, scope)

    def standing(self, scope: "Scope") -> "Standing":
        """Who has opened a connection with this request: to be asked again for all that comes on it.

        The request does nothing by itself, so it is not counted.
        """
        if self._roll is None:
            return Standing(self, None)
        with self._refusals:
            shown = Shown.of(self._token_in(scope))
            self.shown_by(shown)
        return Standing(self, shown)

    def authenticated(self, token: str) -> "Standing":
        """Who goes on with another token on a connection."""
        if self._roll is None:
            return Standing(self, None)
        shape = access.TOKEN.fullmatch(token[:AUTHORIZATION_BYTES_MAX])
        with self._refusals:
            if shape is None:
                raise Unauthenticated(
                    "that is no token as `quiver access token` gives it", sigv4.INCOMPLETE
                )
            shown = Shown.of(shape)
            self.shown_by(shown)
        return Standing(self, shown)

    def _token_of(self, scope: "Scope", roll: Roll) -> Credential:
        return self._known(Shown.of(self._token_in(scope)), roll)

    def _token_in(self, scope: "Scope") -> re.Match[str]:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if not given:
            raise Unauthenticated(
                "this node wants a token: Authorization: Bearer TOKEN", sigv4.MISSING
            )
        scheme, _, text = given[0][:AUTHORIZATION_BYTES_MAX].decode("latin-1").partition(" ")
        shape = access.TOKEN.fullmatch(text.strip())
        if len(given) > 1 or scheme.lower() != "bearer" or shape is None:
            raise Unauthenticated(
                "the Authorization header must be one: Bearer, and a token as "
                "`quiver access token` gives it",
                sigv4.INCOMPLETE,
            )
        return shape

    def _known(self, shown: "Shown", roll: Roll) -> Credential:
        credential = roll.tokens.get(shown.id)
        expected = credential.secret if credential is not None else ""
        right = hmac.compare_digest(shown.hash, expected)
        if credential is None or not right:
            raise Unauthenticated("nobody here has this token", sigv4.UNKNOWN_KEY)
        return self._current(credential, "token")

    @property
    def roll(self) -> Roll | None:
        """Everybody who is known just now; another object when that has changed."""
        return self._roll

    def shown_by(self, shown: "Shown | None") -> Credential | None:
        """The credential of who has shown a token before; None where everybody may all."""
        roll = self._roll
        if roll is None:
            return None
        if shown is None:
            raise Unauthenticated("this node wants a token by now: connect again with one")
        return self._known(shown, roll)

    def demand_current(self, credential: Credential) -> None:
        """Refuse a token whose time is up."""
        self._current(credential, "token")

    def claim(self, scope: "Scope") -> "Signed":
        """What can be said of a signed request before its body is there: most strangers end here."""
        roll = self._roll
        if roll is None:
            return Signed(self, scope, None, None)
        with self._refusals:
            claim = sigv4.claim(scope, self._wall_clock())
            credential = roll.keys.get(claim.terms.key_id)
            if credential is None:
                raise Unauthenticated("nobody here has this access key", sigv4.UNKNOWN_KEY)
            return Signed(self, scope, claim, self._current(credential, "access key"))

    def by_signature(self, scope: "Scope", body: bytes) -> Principal:
        """Who signed this request and this body, by AWS Signature Version 4."""
        return self.claim(scope).by(body)

    def _current(self, credential: Credential, what: str) -> Credential:
        if credential.ends_at <= self._wall_clock():
            raise Unauthenticated(f"this {what} has expired: ask for a new one", sigv4.UNKNOWN_KEY)
        return credential

    def prove(self, scope: "Scope", claim: Claim, credential: Credential, body: bytes) -> Principal:
        """Who made the claim, if the body bears it out."""
        with self._refusals:
            claim.check(credential.secret, body)
        return self._admit(credential, scope)

    def _admit(self, credential: Credential, scope: "Scope") -> Principal:
        """Count the request, and note whose it is, for whoever counts its bytes."""
        principal = credential.principal
        principal.meter.admit(principal.name)
        scope[PRINCIPAL] = principal
        return principal


@dataclass(frozen=True, slots=True)
class Shown:
    """A token that was shown: enough to know it again in another access file."""

    id: str
    hash: str = field(repr=False)

    @classmethod
    def of(cls, shape: re.Match[str]) -> "Shown":
        return cls(shape[1], access.token_hash(shape[0]))


class Standing:
    """Who asks on a connection. It is found out anew whenever the access file has changed."""

    __slots__ = ("_credential", "_guard", "_may", "_roll", "_shown")

    def __init__(self, guard: Guard, shown: Shown | None) -> None:
        self._guard = guard
        self._shown = shown
        self._roll: Roll | None = None
        self._credential: Credential | None = None
        self._may: set[tuple[Verb, str]] = set()  # what was asked before, and is allowed

    def admit(self) -> Principal:
        """As `principal`, and this counts as a request."""
        principal = self.principal()
        principal.meter.admit(principal.name)
        return principal

    def principal(self) -> Principal:
        """Who asks now; `Unauthenticated` if that is nobody any more."""
        guard = self._guard
        if guard.roll is not self._roll:
            self._may.clear()
            self._credential = None
            self._credential = guard.shown_by(self._shown)
            self._roll = guard.roll
        credential = self._credential
        if credential is None:
            return ANYBODY
        guard.demand_current(credential)
        return credential.principal

    def has_shown(self, verb: Verb, topic: str) -> bool:
        """Whether it was found out already that the principal of just now may do that."""
        return (verb, topic) in self._may

    def demand(self, principal: Principal, verb: Verb, topic: str) -> None:
        """As the principal, who is the one of just now; but what is allowed is found out once."""
        if (verb, topic) in self._may:
            return
        principal.demand(verb, topic)
        if len(self._may) >= RIGHTS_KNOWN_MAX:
            self._may.clear()
        self._may.add((verb, topic))


@dataclass(slots=True)
class Signed:
    """A request whose signature looks possible; the body decides."""

    _guard: Guard
    _scope: "Scope" = field(repr=False)
    _claim: Claim | None
    _credential: Credential | None

    def by(self, body: bytes) -> Principal:
        """Who signed it together with `body`."""
        if self._claim is None or self._credential is None:
            return ANYBODY
        return self._guard.prove(self._scope, self._claim, self._credential, body)


class Refusals:
    """Counts refused credentials as they pass, and logs their number and reasons now and then.

    Nothing that was given is logged: what is no token here may be a password elsewhere.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._reasons: dict[str, int] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Unauthenticated):
            return
        self._reasons[error.reason] = self._reasons.get(error.reason, 0) + 1
        if self._clock() >= self._quiet_until:
            logs.event("credentials refused", level=logging.WARNING, **self._reasons)
            self._reasons = {}
            self._quiet_until = self._clock() + REFUSALS_LOG_SECONDS
