"""The pump's end of its conversation with the driver: lines of JSON over one socket."""

from __future__ import annotations

import json
import socket
from typing import Any

from twinshore.fleet import TwinshoreError
from twinshore.mirror.core.desk_words import Message, OfDesk, OfPump, heard_by_pump, line_of, said
from twinshore.mirror.lane.orders import TideOrder

LINE_BYTES_MAX = 64 << 20
HELLO_S = 20.0
TELL_S = 1.0


class DeskLost(TwinshoreError):
    """The driver cannot be reached; the grant decides how long the pump goes on."""


class DriverLine:
    """Blocking writes of small lines, non-blocking reads. `hello`: what it says of itself, first of all."""

    def __init__(self, host: str, port: int, **hello: Any) -> None:
        try:
            self._sock = socket.create_connection((host, port), timeout=HELLO_S)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise DeskLost(f"the driver cannot be reached at {host}:{port}: {error}") from error
        self._received = bytearray()
        try:
            self.tell({"what": "hello", **hello}, HELLO_S)
        except DeskLost:
            self.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def tell(self, message: Message, within_s: float = TELL_S) -> None:
        """One message to the driver. A stuck driver costs no more time than this."""
        line = line_of(message)
        try:
            self._sock.settimeout(within_s)
            self._sock.sendall(line)
        except OSError as error:
            raise DeskLost(f"the driver cannot be told: {error}") from error

    def heard(self) -> list[Message]:
        """Every message that has come."""
        self._sock.setblocking(False)
        while True:
            try:
                got = self._sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError as error:
                raise DeskLost(f"the driver is gone: {error}") from error
            if not got:
                raise DeskLost("the driver hung up")
            self._received += got
            if len(self._received) > LINE_BYTES_MAX:
                raise DeskLost("the driver sends a line without an end")
        *lines, rest = self._received.split(b"\n")
        self._received = bytearray(rest)
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        self._sock.close()


class DeskLine(DriverLine):
    """A pump's."""

    def __init__(self, order: TideOrder) -> None:
        who = {"token": order.desk_token, "link": order.link, "lane": order.lane, "tide": order.tide}
        super().__init__(order.desk_host, order.desk_port, **who)

    def say(self, word: OfPump) -> None:
        self.tell(said(word))

    def words(self) -> list[OfDesk]:
        """All that have come."""
        return [heard_by_pump(message) for message in self.heard()]
