"""Bodies of requests, read and decompressed within limits."""

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from quiver import limits
from quiver.errors import InvalidRequest, MessageTooLarge
from quiver.server.requests import header
from quiver.server.traffic import Held

STEP_BYTES: Final = 256 * limits.KIB  # decompressed at a time

_unpacking = asyncio.Semaphore(limits.UNPACKERS_MAX)


def announced(request: Request) -> int:
    """How long the body will be, if its head says so: with any number of zeros before, which HTTP has."""
    digits = (header(request.scope, b"content-length") or b"").lstrip(b"0")
    return int(digits) if digits.isdigit() else 0


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, decompressed, of at most `limit` bytes; more is refused as early as possible."""
    held: Held = request.scope["quiver.held"]
    if announced(request) > limit:
        raise _too_large(limit)
    body, more = bytearray(), True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limit:
            raise _too_large(limit)
        if len(body) > limits.BODY_FREE_BYTES:
            held.add(len(body) - held.nbytes)  # what is there, not what was announced
    encoding = (header(request.scope, b"content-encoding") or b"").strip().lower()
    if encoding in (b"identity", b""):
        return bytes(body)
    unpack = _UNPACK.get(encoding)
    if unpack is None:
        named = encoding[:40].decode("latin-1")
        raise InvalidRequest(f"Content-Encoding {named!r} is not known; use gzip or zstd")
    async with _unpacking:
        unpacked = await asyncio.to_thread(unpack, bytes(body), limit)
    if len(unpacked) > limits.BODY_FREE_BYTES:
        held.add(len(unpacked))
    return unpacked


def _gunzip(data: bytes, limit: int) -> bytes:
    found = bytearray()
    try:
        while data:
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while not member.eof:
                found += member.decompress(data, STEP_BYTES)
                if len(found) > limit:
                    raise _too_large(limit)
                if not member.unconsumed_tail and not member.eof:
                    raise InvalidRequest("the body is not whole gzip: its end is missing")
                data = member.unconsumed_tail
            data = member.unused_data
    except zlib.error as error:
        raise InvalidRequest(f"the body is not gzip: {error}") from None
    return bytes(found)


def _unzstd(data: bytes, limit: int) -> bytes:
    found = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := stream.read(STEP_BYTES):
                found += piece
                if len(found) > limit:
                    raise _too_large(limit)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidRequest(f"the body is not zstd: {error}") from None
    return bytes(found)


_UNPACK: Final[dict[bytes, Callable[[bytes, int], bytes]]] = {b"gzip": _gunzip, b"zstd": _unzstd}


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the body is larger than {limit:,} bytes; send it in several requests")
