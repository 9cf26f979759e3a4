"""What the core must know of single messages, taken from a batch column by column.

Bytes come straight from Arrow's buffers, which are little-endian on every machine Quiver runs on,
as `Attributes` demands. Python code runs once per distinct key.
"""

import sys
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from quiver.batches.keys import key_hash, tenant_hash
from quiver.batches.schema import column
from quiver.model.commands import Attributes

assert sys.byteorder == "little"

HASH: Final = pa.uint64()
NOTHING: Final = Attributes()


def attributes_of(batch: pa.RecordBatch, *, keyed: bool) -> Attributes | None:
    """The attributes of all rows, or None if they are plain; of keys only if the topic is keyed."""
    if batch.num_columns == 1:  # bodies: nothing to know
        return None
    keys, tenants = _hashes(column(batch, "key")) if keyed else (b"", b"")
    found = Attributes(
        keys=keys,
        tenants=tenants,
        priorities=_numbers(column(batch, "priority")),
        deliver_at=_numbers(column(batch, "deliver_at")),
        expires_at=_numbers(column(batch, "expires_at")),
        dedup_ids=_texts(column(batch, "dedup_id")),
    )
    return None if found == NOTHING else found


def _hashes(keys: pa.Array | None) -> tuple[bytes, bytes]:
    if keys is None or keys.null_count == len(keys):
        return b"", b""
    distinct = keys.dictionary_encode()
    names = distinct.dictionary.to_pylist()

    def spread(number_of: Callable[[str], int]) -> bytes:
        return _raw(pa.array(map(number_of, names), HASH).take(distinct.indices).fill_null(0))

    tenanted = any("/" in name for name in names)
    return spread(key_hash), spread(tenant_hash) if tenanted else b""


def _numbers(values: pa.Array | None) -> bytes:
    """The numbers with 0 for null, or nothing if all are 0."""
    if values is None:
        return b""
    numbers = values.view(pa.int64()) if pa.types.is_timestamp(values.type) else values
    filled = numbers.fill_null(0)
    return _raw(filled) if any(pc.min_max(filled).as_py().values()) else b""


def _texts(values: pa.Array | None) -> tuple[str | None, ...]:
    if values is None or values.null_count == len(values):
        return ()
    return tuple(values.to_pylist())


def _raw(numbers: pa.Array) -> bytes:
    width = numbers.type.bit_width // 8
    content = numbers.buffers()[1]
    return bytes(content.slice(numbers.offset * width, len(numbers) * width))
