"""AWS Signature Version 4 as a server sees it: what was signed, and whether it was.

Written by hand, because libraries for it sign and do not check. The signature covers the method, the
path, the query, the headers it names and the hash of the body. We demand that it names `host` and
every `x-amz-` header, since those decide what a request means, and that it is not older or newer than
15 minutes. `claim` looks at the head alone, so that strangers are refused before a body is read;
`Claim.check` then looks at the rest. Signatures in the query (presigned URLs) are refused: a URL is
written to logs on its way.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from quiver.errors import Unauthenticated
from quiver.limits import (
    AUTHORIZATION_BYTES_MAX,
    CLOCK_SKEW_SECONDS_MAX,
    SIGNING_KEYS_CACHED,
    SIGNING_MOMENTS_CACHED,
    SIGNING_TERMS_CACHED,
)

if TYPE_CHECKING:  # `quiver access` needs no web framework
    from starlette.types import Scope

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "sqs"

# Reasons, in the words of AWS
MISSING: Final = "MissingAuthenticationToken"
UNKNOWN_KEY: Final = "InvalidClientTokenId"
WRONG: Final = "SignatureDoesNotMatch"
EXPIRED: Final = "RequestExpired"
INCOMPLETE: Final = "IncompleteSignature"

Headers = dict[bytes, list[bytes]]  # names in lower case

_TERMS: Final = re.compile(
    rf"{ALGORITHM}\s+"
    r"Credential=(?P<key>[^/\s,]+)/(?P<date>\d{8})/(?P<region>[^/\s,]+)/(?P<service>[^/\s,]+)/aws4_request"
    r"\s*,\s*SignedHeaders=(?P<headers>[a-z0-9;_.-]+)"
    r"\s*,\s*".encode()
)
_ALGORITHM: Final = ALGORITHM.encode()
_SIGNATURE: Final = re.compile(rb"[0-9a-f]{64}\s*")
_MOMENT: Final = re.compile(rb"\d{8}T\d{6}Z")
_HASH: Final = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Terms:
    """What an Authorization header says but for the signature: a client says it all day."""

    key_id: str
    date: str
    region: str
    signed: tuple[bytes, ...]  # the names of headers


@dataclass(slots=True)
class Claim:
    """What the head of a request says about its signature."""

    terms: Terms
    moment: bytes
    signature: bytes = field(repr=False)
    canonical_head: bytes = field(
        repr=False
    )  # of the canonical request, up to the hash of the body
    body_hash: bytes  # as the request states it, or empty

    def check(self, secret: str, body: bytes) -> None:
        """Refuse a body or a head that is not what was signed with `secret`."""
        body_hash = _sha256(body)
        if self.body_hash and not hmac.compare_digest(self.body_hash, body_hash):
            raise Unauthenticated("the body is not the one whose hash was signed", WRONG)
        canonical = _sha256(b"%b\n%b" % (self.canonical_head, body_hash))
        key = _signing_key(secret, self.terms.date, self.terms.region)
        if not hmac.compare_digest(key.signature(self.moment, canonical), self.signature):
            raise Unauthenticated(
                "the request signature we calculated does not match the signature you provided: "
                "check the secret key, and that nothing between us changes the host or the path",
                WRONG,
            )


class SigningKey:
    """The key that is derived from a secret for one day and region."""

    def __init__(self, secret: str, date: str, region: str) -> None:
        self._scope = f"{date}/{region}/{SERVICE}/aws4_request".encode("latin-1")
        key = f"AWS4{secret}".encode()
        for part in (date, region, SERVICE, "aws4_request"):
            key = hmac.digest(key, part.encode("latin-1"), "sha256")
        self._keyed = hmac.new(key, digestmod="sha256")

    def signature(self, moment: bytes, canonical: bytes) -> bytes:
        """Of a canonical request with this hash."""
        made = self._keyed.copy()
        made.update(b"%b\n%b\n%b\n%b" % (_ALGORITHM, moment, self._scope, canonical))
        return made.hexdigest().encode()


def claim(scope: "Scope", now: float) -> Claim:
    """What the request claims to be signed with, if that can be true at all."""
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    terms, signature = _authorization(headers, scope["query_string"])
    _check_signed(terms.signed, headers)
    return Claim(
        terms=terms,
        moment=_moment(headers, terms.date, now),
        signature=signature,
        canonical_head=_canonical_head(scope, headers, terms.signed),
        body_hash=_body_hash(headers),
    )


def _authorization(headers: Headers, query: bytes) -> tuple[Terms, bytes]:
    given = headers.get(b"authorization", [])
    if not given:
        if b"x-amz-signature=" in query.lower():
            raise Unauthenticated(
                "presigned URLs are not taken here: sign the request in its headers", INCOMPLETE
            )
        raise Unauthenticated("the request is not signed: give the client an access key", MISSING)
    terms, _, signature = _spaced(given[0])[:AUTHORIZATION_BYTES_MAX].rpartition(b"Signature=")
    if not _SIGNATURE.fullmatch(signature) or len(given) > 1:
        raise _not_one()
    return _terms(terms), signature[:64]


@lru_cache(SIGNING_TERMS_CACHED)  # what is refused is not kept
def _terms(text: bytes) -> Terms:
    found = _TERMS.fullmatch(text)
    if found is None:
        raise _not_one()
    if found["service"] != SERVICE.encode():
        raise Unauthenticated(f"the credential should be scoped to service {SERVICE!r}", WRONG)
    signed = found["headers"].split(b";")
    if signed != sorted(set(signed)):
        raise Unauthenticated("the signed headers must be sorted, each once", INCOMPLETE)
    key_id, date, region = (found[name].decode("latin-1") for name in ("key", "date", "region"))
    return Terms(key_id, date, region, tuple(signed))


def _not_one() -> Unauthenticated:
    return Unauthenticated(
        f"the Authorization header must be one of {ALGORITHM}, with Credential, SignedHeaders "
        "and Signature",
        INCOMPLETE,
    )


def _check_signed(signed: tuple[bytes, ...], headers: Headers) -> None:
    needed = [b"host", *[name for name in headers if name.startswith(b"x-amz-")]]
    if missing := [name for name in needed if name not in signed]:
        raise Unauthenticated(f"{_listed(missing)} must be signed too", WRONG)
    if missing := [name for name in signed if name not in headers]:
        raise Unauthenticated(f"{_listed(missing)} was signed and is not there", WRONG)


def _listed(names: list[bytes]) -> str:
    return b", ".join(sorted(names)).decode("latin-1")[:200]


def _moment(headers: Headers, date: str, now: float) -> bytes:
    """When it was signed, if that was not too long ago."""
    moment = _spaced(headers.get(b"x-amz-date", [b""])[0])
    try:
        signed_at = _seconds(moment)
    except ValueError:
        raise Unauthenticated(
            "x-amz-date must be there, as in 20261115T120000Z", INCOMPLETE
        ) from None
    if moment[:8].decode() != date:
        raise Unauthenticated("the credential is of another day than x-amz-date", WRONG)
    if abs(now - signed_at) > CLOCK_SKEW_SECONDS_MAX:
        raise Unauthenticated(
            f"signed at {moment.decode()}, which is more than {CLOCK_SKEW_SECONDS_MAX // 60} minutes "
            f"from now, {datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}: check the client's clock",
            EXPIRED,
        )
    return moment


@lru_cache(SIGNING_MOMENTS_CACHED)  # many requests are signed in one second
def _seconds(moment: bytes) -> float:
    if not _MOMENT.fullmatch(moment):
        raise ValueError
    return datetime.fromisoformat(moment.decode()).timestamp()


def _body_hash(headers: Headers) -> bytes:
    stated = _spaced(headers.get(b"x-amz-content-sha256", [b""])[0])
    if stated and not _HASH.fullmatch(stated):
        raise Unauthenticated(
            "the body must be signed: x-amz-content-sha256 must be its SHA-256", WRONG
        )
    return stated


# -- the canonical request -------------------------------------------------------------------------


def _canonical_head(scope: "Scope", headers: Headers, signed: tuple[bytes, ...]) -> bytes:
    lines = [
        scope["method"].encode(),
        _canonical_path(scope),
        _canonical_query(scope["query_string"]),
        *[
            b"%b:%b" % (name, b",".join([_spaced(each) for each in headers[name]]))
            for name in signed
        ],
        b"",
        b";".join(signed),
    ]
    return b"\n".join(lines)


def _canonical_path(scope: "Scope") -> bytes:
    """Without dots and empty parts, and encoded once more than it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    if raw == b"/":  # where SDKs post to
        return raw
    kept: list[bytes] = []
    for part in raw.split(b"/"):
        if part == b"..":
            kept = kept[:-1]
        elif part not in (b"", b"."):
            kept.append(part)
    path = b"/" + b"/".join(kept) + (b"/" if kept and raw.endswith(b"/") else b"")
    return quote(path, safe="/-_.~").encode()


def _canonical_query(query: bytes) -> bytes:
    if not query:
        return b""
    pairs = (pair.partition(b"=") for pair in query.split(b"&") if pair)
    encoded = [(_encoded(name), _encoded(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded)).encode()


def _encoded(text: bytes) -> str:
    return quote(unquote_to_bytes(text), safe="-_.~")


def _spaced(value: bytes) -> bytes:
    """The value of a header without superfluous space."""
    return b" ".join(value.split())


@lru_cache(SIGNING_KEYS_CACHED)
def _signing_key(secret: str, date: str, region: str) -> SigningKey:
    return SigningKey(secret, date, region)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()
