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
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from quiver.errors import Unauthenticated
from quiver.limits import AUTHORIZATION_BYTES_MAX, CLOCK_SKEW_SECONDS_MAX, SIGNING_KEYS_CACHED

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

_AUTHORIZATION: Final = re.compile(
    rf"{ALGORITHM}\s+"
    r"Credential=(?P<key>[^/\s,]+)/(?P<date>\d{8})/(?P<region>[^/\s,]+)/(?P<service>[^/\s,]+)/aws4_request"
    r"\s*,\s*SignedHeaders=(?P<headers>[a-z0-9;_.-]+)"
    r"\s*,\s*Signature=(?P<signature>[0-9a-f]{64})\s*"
)
_MOMENT: Final = re.compile(r"\d{8}T\d{6}Z")


@dataclass(frozen=True, slots=True)
class Claim:
    """What the head of a request says about its signature."""

    key_id: str
    date: str
    region: str
    moment: str
    signed: tuple[str, ...]
    signature: str = field(repr=False)
    canonical_head: str = field(repr=False)  # of the canonical request, up to the hash of the body
    body_hash: str  # as the request states it, or empty

    def check(self, secret: str, body: bytes) -> None:
        """Refuse a body or a head that is not what was signed with `secret`."""
        body_hash = hashlib.sha256(body).hexdigest()
        if self.body_hash and not hmac.compare_digest(self.body_hash.encode(), body_hash.encode()):
            raise Unauthenticated("the body is not the one whose hash was signed", WRONG)
        canonical = f"{self.canonical_head}\n{body_hash}"
        scope = f"{self.date}/{self.region}/{SERVICE}/aws4_request"
        to_sign = "\n".join([ALGORITHM, self.moment, scope, _sha256(canonical)])
        key = _signing_key(secret, self.date, self.region)
        expected = hmac.digest(key, to_sign.encode(), "sha256").hex()
        if not hmac.compare_digest(expected, self.signature):
            raise Unauthenticated(
                "the request signature we calculated does not match the signature you provided: "
                "check the secret key, and that nothing between us changes the host or the path",
                WRONG,
            )


def claim(scope: "Scope", now: float) -> Claim:
    """What the request claims to be signed with, if that can be true at all."""
    headers = _headers(scope)
    parts = _authorization(headers, scope["query_string"])
    signed = tuple(parts["headers"].split(";"))
    _check_signed(signed, headers)
    return Claim(
        key_id=parts["key"],
        date=parts["date"],
        region=parts["region"],
        moment=_moment(headers, parts["date"], now),
        signed=signed,
        signature=parts["signature"],
        canonical_head=_canonical_head(scope, headers, signed),
        body_hash=_body_hash(headers),
    )


def _authorization(headers: dict[str, list[str]], query: bytes) -> re.Match[str]:
    given = headers.get("authorization", [])
    if not given:
        if b"x-amz-signature=" in query.lower():
            raise Unauthenticated(
                "presigned URLs are not taken here: sign the request in its headers", INCOMPLETE
            )
        raise Unauthenticated("the request is not signed: give the client an access key", MISSING)
    found = _AUTHORIZATION.fullmatch(given[0][:AUTHORIZATION_BYTES_MAX])
    if found is None or len(given) > 1:
        raise Unauthenticated(
            f"the Authorization header must be one of {ALGORITHM}, with Credential, SignedHeaders "
            "and Signature",
            INCOMPLETE,
        )
    if found["service"] != SERVICE:
        raise Unauthenticated(f"the credential should be scoped to service {SERVICE!r}", WRONG)
    return found


def _check_signed(signed: tuple[str, ...], headers: dict[str, list[str]]) -> None:
    if list(signed) != sorted(set(signed)):
        raise Unauthenticated("the signed headers must be sorted, each once", INCOMPLETE)
    needed = {"host", *(name for name in headers if name.startswith("x-amz-"))}
    if missing := sorted(needed.difference(signed)):
        raise Unauthenticated(f"{', '.join(missing)[:200]} must be signed too", WRONG)
    if missing := [name for name in signed if name not in headers]:
        raise Unauthenticated(f"{', '.join(missing)[:200]} was signed and is not there", WRONG)


def _moment(headers: dict[str, list[str]], date: str, now: float) -> str:
    """When it was signed, if that was not too long ago."""
    moment = headers.get("x-amz-date", [""])[0]
    try:
        if not _MOMENT.fullmatch(moment):
            raise ValueError
        signed_at = datetime.fromisoformat(moment)
    except ValueError:
        raise Unauthenticated(
            "x-amz-date must be there, as in 20261115T120000Z", INCOMPLETE
        ) from None
    if moment[:8] != date:
        raise Unauthenticated("the credential is of another day than x-amz-date", WRONG)
    if abs(now - signed_at.timestamp()) > CLOCK_SKEW_SECONDS_MAX:
        raise Unauthenticated(
            f"signed at {moment}, which is more than {CLOCK_SKEW_SECONDS_MAX // 60} minutes from "
            f"now, {datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}: check the client's clock",
            EXPIRED,
        )
    return moment


def _body_hash(headers: dict[str, list[str]]) -> str:
    stated = headers.get("x-amz-content-sha256", [""])[0]
    if stated and not re.fullmatch(r"[0-9a-f]{64}", stated):
        raise Unauthenticated(
            "the body must be signed: x-amz-content-sha256 must be its SHA-256", WRONG
        )
    return stated


# -- the canonical request -------------------------------------------------------------------------


def _canonical_head(scope: "Scope", headers: dict[str, list[str]], signed: tuple[str, ...]) -> str:
    lines = [
        scope["method"],
        _canonical_path(scope),
        _canonical_query(scope["query_string"]),
        *(f"{name}:{','.join(headers[name])}" for name in signed),
        "",
        ";".join(signed),
    ]
    return "\n".join(lines)


def _canonical_path(scope: "Scope") -> str:
    """Without dots and empty parts, and encoded once more than it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    kept: list[bytes] = []
    for part in raw.split(b"/"):
        if part == b"..":
            kept = kept[:-1]
        elif part not in (b"", b"."):
            kept.append(part)
    path = b"/" + b"/".join(kept) + (b"/" if kept and raw.endswith(b"/") else b"")
    return quote(path, safe="/-_.~")


def _canonical_query(query: bytes) -> str:
    pairs = (pair.partition(b"=") for pair in query.split(b"&") if pair)
    encoded = [(_encoded(name), _encoded(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _encoded(text: bytes) -> str:
    return quote(unquote_to_bytes(text), safe="-_.~")


def _headers(scope: "Scope") -> dict[str, list[str]]:
    """Names to their values, without superfluous space."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, value in scope["headers"]:
        found[name.decode("latin-1").lower()].append(b" ".join(value.split()).decode("latin-1"))
    return dict(found)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("latin-1")).hexdigest()


@lru_cache(SIGNING_KEYS_CACHED)
def _signing_key(secret: str, date: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
