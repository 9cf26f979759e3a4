"""Frames: how requests and answers share a stream of bytes.

    bytes u32 · head u32 · verb u8 · flags u8 · 0 u16 · id u32      little-endian, 16 bytes
    the head, `head` bytes of MessagePack, and zeros up to a multiple of 8
    the payload, the rest of `bytes`: a batch as the log has it, a body, or nothing

An answer has the id of its request. 0 is the connection itself. Lengths are held against their bounds
before memory is taken, and a payload is received into memory of its own: it is copied once.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final, NamedTuple

import pyarrow as pa

from quiver import limits
from quiver.batches.codec import BytesLike
from quiver.errors import ProtocolError

PROTOCOL: Final = "quiver/1"  # in the Upgrade header of a request, and of its answer
PATH: Final = "/v1/wire"
MEDIA_TYPE: Final = "application/vnd.quiver.frames"  # of frames that are posted
HEADER: Final = Struct("<IIBBHI")
IDS: Final = 2**32  # ids are below it; 0 is the connection
_ALIGNED: Final = 8  # where a payload begins: Arrow's buffers in it are aligned then


class Verb(IntEnum):
    """What a frame asks or says."""

    # of clients
    SEND = 1  # one message
    BATCH = 2  # a batch of them
    RECEIVE = 3
    SETTLE = 4
    TRANSACT = 5
    PROPOSE = 6  # any other command
    ASK = 7  # a query
    WATCH = 8  # a query that may have no answer yet
    ERRAND = 9  # what must be done beside the messages
    CANCEL = 10  # nobody waits for the request of this id any more
    AUTHENTICATE = 11  # go on with another token
    PING = 12
    # of nodes
    WELCOME = 64  # the first frame: version, time
    ANSWER = 65
    ERROR = 66
    PONG = 67
    GOAWAY = 68  # the node is about to end: what was asked is answered, ask elsewhere from now on


class Flag(IntFlag):
    """What else is to be known of a frame."""

    SYNC = 1  # of a request: confirmed when it is on disk
    ZSTD = 2  # the payload is compressed; its size is in the head of the stream of zstd
    MORE = 4  # of an answer: it goes on in another frame of the same id
    RELATIVE = 8  # of a batch: its times count from the moment at which the node has it


_UNKNOWN: Final = 0xFF & ~sum(Flag)
_NOTHING: Final = memoryview(b"")


class Frame(NamedTuple):
    """A frame that was received; head and payload are views of memory that nobody else writes to.

    One that was `dropped` had so many bytes, and nothing of it was kept.
    """

    verb: int
    flags: int
    id: int
    head: memoryview
    payload: memoryview
    dropped: int = 0

    @property
    def nbytes(self) -> int:
        """What it keeps in memory."""
        return len(self.head) + len(self.payload)


def pack(
    verb: Verb,
    number: int,
    head: bytes = b"",
    payload: BytesLike = b"",
    flags: int = 0,
) -> tuple[bytes, memoryview | None]:
    """A frame as one or two pieces to be written one after the other; a small one is one piece."""
    size = len(payload)
    if not size:
        return HEADER.pack(len(head), len(head), verb, flags, 0, number) + head, None
    padding = -len(head) % _ALIGNED
    nbytes = len(head) + padding + size
    start = HEADER.pack(nbytes, len(head), verb, flags, 0, number) + head + bytes(padding)
    if size <= limits.FRAME_JOINED_BYTES_MAX:
        return start + memoryview(payload), None
    return start, memoryview(payload).cast("B")


class FrameReader:
    """From bytes to frames. The caller receives into `buffer()` and says with `received` how many bytes.

    Small frames go through a buffer that is as large as what came lately, and is there only while something
    is in it; what remains of a large frame is received where it stays. A frame that has more bytes than
    `bounds` have for its verb is dropped, without memory.
    """

    def __init__(
        self,
        frame_bytes_max: int = limits.FRAME_BYTES_MAX,
        head_bytes_max: int = limits.FRAME_HEAD_BYTES_MAX,
        bounds: Mapping[int, int] | None = None,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._head_bytes_max = head_bytes_max
        self._bounds = {} if bounds is None else bounds
        self._small = _NOTHING
        self._small_bytes = limits.FRAME_BUFFER_BYTES_MIN  # of the next one
        self._start = self._end = 0  # what of it was received and not taken yet
        self._large: memoryview | None = None  # head and payload of one frame
        self._filled = 0  # of it
        self._about: tuple[int, int, int, int] = (0, 0, 0, 0)  # head bytes, verb, flags, id
        self._passing = 0  # bytes still to come of a frame that was dropped

    @property
    def partial(self) -> bool:
        """Whether a frame has begun that is not complete."""
        return self._large is not None or self._passing > 0 or self._start < self._end

    @property
    def expected(self) -> int:
        """How many bytes a frame that is being received into memory of its own still lacks."""
        return 0 if self._large is None else len(self._large) - self._filled

    @property
    def held(self) -> int:
        """What has come of such a frame, and is kept."""
        return self._filled if self._large is not None else 0

    def drop(self) -> Frame:
        """Do without such a frame: what has come of it is forgotten, and what still comes passed over."""
        assert self._large is not None
        whole, self._large = self._large, None
        self._passing = len(whole) - self._filled
        return Frame(*self._about[1:], _NOTHING, _NOTHING, len(whole))

    def buffer(self) -> memoryview:
        """Where to receive to; it is not empty."""
        if self._large is not None:
            return self._large[self._filled :]
        if self._end == len(self._small):  # there is none, or the start of a frame is at its end
            kept = self._small[self._start :]
            self._small = memoryview(bytearray(self._small_bytes))
            self._small[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        return self._small[self._end :]

    def fill(self, data: BytesLike) -> int:
        """Copy as much to `buffer()` as there is room for; how many bytes that were."""
        room = self.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        return count

    def whole(self, data: BytesLike) -> list[Frame]:
        """The frames that these bytes are; ProtocolError if they end in the midst of one."""
        found: list[Frame] = []
        left = memoryview(data)
        while left:
            count = self.fill(left)
            left = left[count:]
            found += self.received(count)
        if self.partial:
            raise ProtocolError("what came ends in the middle of a frame")
        return found

    def received(self, count: int) -> Iterator[Frame]:
        """So many bytes are there now; the frames that they complete, each to be taken before the next
        call of anything else. ProtocolError if these are no frames of ours."""
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return
            whole, self._large = self._large, None
            yield self._made(whole.toreadonly(), *self._about)
            return
        self._end += count
        if self._end == len(self._small):
            self._small_bytes = min(2 * self._small_bytes, limits.FRAME_BUFFER_BYTES)
        self._pass_over()
        while self._end - self._start >= HEADER.size:
            nbytes, *about = self._checked(HEADER.unpack_from(self._small, self._start))
            at = self._start + HEADER.size
            if nbytes > self._bounds.get(about[1], self._frame_bytes_max):
                self._start, self._passing = at, nbytes
                self._pass_over()
                yield Frame(about[1], about[2], about[3], _NOTHING, _NOTHING, nbytes)
                continue
            there = self._end - at
            if there < nbytes:
                if HEADER.size + nbytes > len(self._small) // 2:
                    self._large = memoryview(pa.allocate_buffer(nbytes)).cast("B")
                    self._large[:there] = self._small[at : self._end]
                    self._filled, self._about = there, (about[0], about[1], about[2], about[3])
                    self._let_go()
                break
            self._start = at + nbytes
            whole = memoryview(bytes(self._small[at : self._start]))
            yield self._made(whole, about[0], about[1], about[2], about[3])
        if 0 < self._start == self._end:
            if 4 * self._end <= len(self._small):
                self._small_bytes = max(self._small_bytes // 2, limits.FRAME_BUFFER_BYTES_MIN)
            self._let_go()

    def _let_go(self) -> None:
        """Nothing is in the buffer: who has many connections keeps none for those that are silent."""
        self._small, self._start, self._end = _NOTHING, 0, 0

    def _pass_over(self) -> None:
        count = min(self._passing, self._end - self._start)
        self._start += count
        self._passing -= count

    def _checked(self, header: tuple[int, ...]) -> tuple[int, ...]:
        nbytes, head, verb, flags, zero, number = header
        if zero or flags & _UNKNOWN:
            raise ProtocolError("what comes is not the protocol of a queue, or a newer one")
        if head > min(nbytes, self._head_bytes_max) or nbytes > self._frame_bytes_max:
            raise ProtocolError(
                f"a frame of {nbytes:,} bytes with a head of {head:,} is larger than the "
                f"{self._frame_bytes_max:,} and {self._head_bytes_max:,} that it may have"
            )
        return nbytes, head, verb, flags, number

    @staticmethod
    def _made(whole: memoryview, head: int, verb: int, flags: int, number: int) -> Frame:
        return Frame(verb, flags, number, whole[:head], whole[head + -head % _ALIGNED :])
