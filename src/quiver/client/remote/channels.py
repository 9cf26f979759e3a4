"""Which channel a call goes through: threads share one, and each event loop has its own."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final, Protocol

from quiver import limits
from quiver.client.remote.address import Address
from quiver.client.remote.blocking import BlockingChannel
from quiver.client.remote.calls import Call, Channel
from quiver.client.remote.handshake import NoUpgrade
from quiver.client.remote.looping import LoopChannel
from quiver.client.remote.posting import PostingChannel
from quiver.client.remote.session import NodeClock
from quiver.errors import InvalidRequest, QueueClosed

LOGGER: Final = logging.getLogger("quiver")


class Channels(Protocol):
    """Gives the channel for whoever calls now."""

    def current(self) -> Channel: ...

    def apart(self) -> "Channels": ...

    def forget(self) -> None: ...

    def close(self) -> None: ...


class ThreadChannels:
    """One channel for all threads, and one for their signal handlers."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self.channel: Any = make()
        self._within: ThreadChannels | None = None
        self._closed = False

    def current(self) -> Channel:
        channel: Channel = self.channel
        if self.channel.is_interrupted():
            return self._of_handlers().current()
        return channel

    def _of_handlers(self) -> "ThreadChannels":
        if self._within is None:
            within = ThreadChannels(self._make)
            if self._within is None:  # or another handler was here meanwhile
                self._within = within
        if self._closed:
            self._within.close()
        return self._within

    def apart(self) -> "ThreadChannels":
        return ThreadChannels(self._make)

    def forget(self) -> None:
        self.channel.forget()
        if self._within is not None:
            self._within.forget()

    def close(self) -> None:
        self._closed = True
        self.channel.close()
        if self._within is not None:
            self._within.close()


class LoopChannels:
    """A channel for each event loop; other threads use that of the loop which has opened the queue."""

    def __init__(
        self, make: Callable[[asyncio.AbstractEventLoop], Any], home: asyncio.AbstractEventLoop
    ) -> None:
        self._make = make
        self._home = home
        self._lock = Lock()
        self._channels: dict[asyncio.AbstractEventLoop, Any] = {}
        self._closed = False

    def current(self) -> Channel:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = self._home
        channel: Channel = self.of(loop)
        return channel

    def of(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The channel of a loop."""
        channel = self._channels.get(loop)
        if channel is None:
            with self._lock:
                if self._closed:
                    raise QueueClosed("the queue is closed; connect again")
                for known in [known for known in self._channels if known.is_closed()]:
                    del self._channels[known]
                channel = self._channels.setdefault(loop, self._make(loop))
        return channel

    def apart(self) -> "LoopChannels":
        return LoopChannels(self._make, self._home)

    def forget(self) -> None:
        self._lock = Lock()
        for channel in self._channels.values():
            channel.forget()
        self._channels = {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for channel in list(self._channels.values()):
            channel.close()


Ping = Callable[[Channel], Call[Any]]


def open_channels(
    address: Address, clock: NodeClock, ping: Ping, home: asyncio.AbstractEventLoop | None
) -> Channels:
    """The channels to a node that has answered: for the loop `home`, or for threads."""
    tls = address.tls()
    if address.wire == "never":
        return _for_threads(PostingChannel, address, tls, clock, ping)
    try:
        if home is None:
            return _for_threads(BlockingChannel, address, tls, clock, ping)
        return _for_loops(address, tls, clock, ping, home)
    except NoUpgrade as error:
        if address.wire == "always":
            raise InvalidRequest(
                f"what answers at {address} does not upgrade to the protocol of a queue ({error}): it is "
                "no node, an older one, or a proxy that does not pass the upgrade on"
            ) from None
        channels = _for_threads(PostingChannel, address, tls, clock, ping)
        LOGGER.warning(
            "%s does not upgrade to the protocol of a queue (%s): each call is a request of HTTP now, "
            "which is slower. Let the proxy pass on `Upgrade`, or say wire=never in the address",
            address, error,
        )  # fmt: skip
        return channels


def _for_threads(
    kind: type[BlockingChannel | PostingChannel], address: Address, tls: ssl.SSLContext | None,
    clock: NodeClock, ping: Ping,
) -> Channels:  # fmt: skip
    channels = ThreadChannels(lambda: kind(address, tls, clock))
    with _closed_if_it_fails(channels):
        channel = channels.channel
        channel.open(ping(channel), _share(address))
    return channels


def _for_loops(
    address: Address, tls: ssl.SSLContext | None, clock: NodeClock, ping: Ping,
    home: asyncio.AbstractEventLoop,
) -> Channels:  # fmt: skip
    channels = LoopChannels(lambda loop: LoopChannel(address, tls, clock, loop), home)
    with _closed_if_it_fails(channels):
        channel = channels.of(home)
        opening = channel.open(ping(channel), _share(address))
        asyncio.run_coroutine_threadsafe(opening, home).result()
    return channels


@contextmanager
def _closed_if_it_fails(channels: Channels) -> Iterator[None]:
    try:
        yield
    except BaseException:
        channels.close()
        raise


def _share(address: Address) -> float:
    """How long one host may take to answer for the first time."""
    seconds = min(address.open_seconds, address.patience_seconds)
    return max(seconds / len(address.hosts), limits.OPEN_ATTEMPT_SECONDS_MIN)
