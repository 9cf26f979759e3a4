"""Bodies of requests, read within limits."""

import zlib

import pyarrow as pa
from starlette.requests import Request

from quiver.errors import InvalidRequest, MessageTooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, decompressed, of at most `limit` bytes; more is refused as early as possible."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > limit:
            raise _too_large(limit)
    match request.headers.get("content-encoding", "identity").strip().lower():
        case "identity" | "":
            return bytes(found)
        case "gzip":
            return _gunzip(bytes(found), limit)
        case "zstd":
            return _unzstd(bytes(found), limit)
        case other:
            raise InvalidRequest(f"Content-Encoding {other[:40]!r} is not known; use gzip or zstd")


def _gunzip(data: bytes, limit: int) -> bytes:
    machine = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = machine.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidRequest(f"the body is not gzip: {error}") from None
    if len(found) > limit:
        raise _too_large(limit)
    if not machine.eof:
        raise InvalidRequest("the body is not whole gzip: its end is missing")
    return found


def _unzstd(data: bytes, limit: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            found: bytes = stream.read(limit + 1)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidRequest(f"the body is not zstd: {error}") from None
    if len(found) > limit:
        raise _too_large(limit)
    return found


def _too_large(limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the body is larger than {limit:,} bytes; send it in several requests")
