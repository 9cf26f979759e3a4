"""Commands and state as bytes.

A command is its kind, which the frame carries, and a MessagePack map of its fields by name. So a
field with a default can be added to a command later, and a kind can be added to the table,
without a new format; anything else that changes the meaning of stored bytes needs one
(`logfile.VERSION`). Either is a new level of the log (`model/levels`), and only logs of that level
may have it. Whoever reads a kind or a field that it does not know refuses it: to leave it out would
be to do something else than those who know it.

State is plain MessagePack. Keys of maps may be of any kind; tuples and sets come back as lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from quiver.errors import CorruptLog, UnsupportedFormat
from quiver.model import commands
from quiver.storage.logfile import REMEDY

if TYPE_CHECKING:
    from collections.abc import Iterator

# Part of the format: a number keeps its meaning for ever and is never given to another command.
KINDS: Final[dict[int, type[commands.Command]]] = {
    1: commands.Found,
    2: commands.CreateTopic,
    3: commands.DeleteTopic,
    4: commands.Send,
    5: commands.OpenProducer,
    6: commands.Receive,
    7: commands.Settle,
    8: commands.Transact,
    9: commands.CreateGroup,
    10: commands.DeleteGroup,
    11: commands.Seek,
    12: commands.PauseGroup,
    13: commands.Purge,
    14: commands.Discard,
    15: commands.Redrive,
    16: commands.Join,
    17: commands.Heartbeat,
    18: commands.Commit,
    19: commands.Leave,
    20: commands.Tick,
    21: commands.AlterTopic,
    22: commands.Compact,
    23: commands.Publish,
    30: commands.SetTime,
    31: commands.Raise,
    32: commands.SetPeers,
}

_KIND_OF: Final = {command: kind for kind, command in KINDS.items()}
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final = {kind: msgspec.msgpack.Decoder(command) for kind, command in KINDS.items()}


def encode(command: commands.Command) -> tuple[int, bytes]:
    """The kind and the bytes of a command."""
    return _KIND_OF[type(command)], _ENCODER.encode(command)


def decode(kind: int, data: bytes) -> commands.Command:
    """The command that `encode` made this of."""
    if kind not in _DECODERS:
        raise UnsupportedFormat(
            f"The log has a command of kind {kind}, which this Quiver does not know. "
            "Open the directory with the newer Quiver that wrote it."
        )
    name = KINDS[kind].__name__
    try:
        command = _DECODERS[kind].decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"The log has a {name} that cannot be read: {error}. {REMEDY}") from error
    known = _ENCODER.encode(command)
    if known != data:  # written by another version: it has fewer fields than ours, or more
        decode_plain = msgspec.msgpack.decode
        unknown = next(_fields_left_out(decode_plain(data), decode_plain(known)), None)
        if unknown is not None:
            raise UnsupportedFormat(
                f"The log has a {name} with a field {unknown!r}, which this Quiver does not know. "
                "Open the directory with the newer Quiver that wrote it."
            )
    return command


def _fields_left_out(stored: Any, known: Any) -> Iterator[str]:
    """The fields in what is stored that were left out of what is known, at any depth."""
    if isinstance(stored, dict):
        for name, value in stored.items():
            if name not in known:
                yield name
            else:
                yield from _fields_left_out(value, known[name])
    elif isinstance(stored, list):
        for one, other in zip(stored, known, strict=False):  # an older one may be shorter
            yield from _fields_left_out(one, other)


def encode_state(state: object) -> bytes:
    """The bytes of a snapshot's payload: maps, lists, text, bytes, numbers, None."""
    return _ENCODER.encode(state)


def decode_state(data: bytes) -> Any:
    """What `encode_state` made this of."""
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptLog(f"The snapshot cannot be read: {error}. {REMEDY}") from error
