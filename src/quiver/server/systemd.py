"""What systemd wants to hear from a service of Type=notify: datagrams to a socket that it names."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG: Final = "WATCHDOG_USEC"


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Say it, such as READY=1; without systemd nobody listens, which is no fault."""
    address = environment.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract names
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """How often to tell systemd that all is well: if one look fails, two more are left before it acts."""
    microseconds = environment.get(WATCHDOG, "")
    return int(microseconds) / 4e6 if microseconds.isdecimal() and int(microseconds) else None
