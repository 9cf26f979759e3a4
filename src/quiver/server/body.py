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
from quiver.server.traffic import HeldBytes

STEP_BYTES: Final = 256 * limits.KIB  # decompressed at a time
PIECE_BYTES: Final = 16 * limits.KIB  # of gzip, of which zlib copies what comes after a member

unpacking = asyncio.Semaphore(limits.UNPACKERS_MAX)


def announced(request: Request) -> int:
    """How long the body will be, if its head says so: with any number of zeros before, which HTTP has."""
    digits = (header(request.scope, b"content-length") or b"").lstrip(b"0")
    return int(digits) if digits.isdigit() else 0


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, decompressed, of at most `limit` bytes; more is refused as early as possible."""
    return await unpacked(request, await read_packed(request, limit), limit)


async def read_packed(request: Request, limit: int) -> bytes:
    """The whole body as it was sent, which is what a signature is for."""
    held = HeldBytes.by(request)
    if announced(request) > limit:
        raise too_large(limit)
    body: bytes | bytearray = b""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        piece: bytes = message.get("body", b"")
        if not body:
            body = piece  # most come as one
        elif isinstance(body, bytes):
            body = bytearray(body) + piece
        else:
            body += piece
        if len(body) > limit:
            raise too_large(limit)
        if len(body) > limits.BODY_FREE_BYTES:
            held.add(len(body) - held.nbytes)  # what is there, not what was announced
        if not message.get("more_body", False):
            return bytes(body)


async def unpacked(request: Request, body: bytes, limit: int) -> bytes:
    """The body, decompressed if its head says that it is compressed."""
    encoding = (header(request.scope, b"content-encoding") or b"").strip().lower()
    if encoding in (b"identity", b""):
        return body
    unpack = _UNPACK.get(encoding)
    if unpack is None:
        named = encoding[:40].decode("latin-1")
        raise InvalidRequest(f"Content-Encoding {named!r} is not known; use gzip or zstd")
    async with unpacking:
        found = await asyncio.to_thread(unpack, body, limit)
    if len(found) > limits.BODY_FREE_BYTES:
        HeldBytes.by(request).add(len(found))
    return found


def _gunzip(data: bytes, limit: int) -> bytes:
    found, view, at, members = bytearray(), memoryview(data), 0, 0
    try:
        while at < len(data):
            members += 1
            if members > limits.GZIP_MEMBERS_MAX:
                raise InvalidRequest(f"gzip may have {limits.GZIP_MEMBERS_MAX:,} members at most")
            member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while not member.eof:
                piece = view[at : at + PIECE_BYTES]
                if not piece:
                    raise InvalidRequest("the body is not whole gzip: its end is missing")
                found += member.decompress(piece, STEP_BYTES)
                if len(found) > limit:
                    raise too_large(limit)
                at += len(piece) - len(member.unused_data or member.unconsumed_tail)
    except zlib.error as error:
        raise InvalidRequest(f"the body is not gzip: {error}") from None
    return bytes(found)


def unzstd(data: bytes | memoryview, limit: int) -> bytes:
    """What was compressed, if it has no more than `limit` bytes."""
    found = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := stream.read(STEP_BYTES):
                found += piece
                if len(found) > limit:
                    raise too_large(limit)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidRequest(f"the body is not zstd: {error}") from None
    return bytes(found)


_UNPACK: Final[dict[bytes, Callable[[bytes, int], bytes]]] = {b"gzip": _gunzip, b"zstd": unzstd}


def too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the body is larger than {limit:,} bytes; send it in several requests")
