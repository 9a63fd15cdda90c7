"""The pump's end of its conversation with the driver: lines of JSON over one socket, and the grant it lives by."""

from __future__ import annotations

import json
import socket
from typing import Any

from twinshore.fleet import TwinshoreError
from twinshore.mirror.core.commands import Beat, Done, Released
from twinshore.mirror.core.desk_words import Message, OfDesk, heard_by_pump
from twinshore.mirror.core.pump_core import Grant
from twinshore.mirror.lane.orders import TideOrder
from twinshore.service.clock import steady_s

LINE_BYTES_MAX = 64 << 20
HELLO_S = 20.0


def fields_of(value: Any) -> list[Any]:
    """How a slotted value travels."""
    return [getattr(value, name) for name in value.__slots__]


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
            self.say("hello", **hello)
        except DeskLost:
            self.close()
            raise

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, what: str, **more: Any) -> None:
        """One message to the driver. A stuck driver may cost at most a second."""
        text = json.dumps({"what": what, **more}, separators=(",", ":"), default=fields_of) + "\n"
        try:
            self._sock.settimeout(1.0 if what != "hello" else HELLO_S)
            self._sock.sendall(text.encode())
        except OSError as error:
            raise DeskLost(f"the driver cannot be told: {error}") from error

    def heard(self) -> list[dict[str, Any]]:
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
    """A pump's. `grant` is on `steady_s`."""

    def __init__(self, order: TideOrder) -> None:
        who = {"token": order.desk_token, "link": order.link, "lane": order.lane, "tide": order.tide}
        super().__init__(order.desk_host, order.desk_port, **who)
        self.grant = Grant()

    def account(self, beat: Beat) -> None:
        """What the lane carried and met."""
        self.beat(beat.carried, beat.incidents, beat.speed)

    def beat(self, carried: list[Any], incidents: list[Any], speed: dict[str, Any]) -> None:
        """Accounts for what crossed and asks for a longer grant. Its length counts from now, before it is asked for;
        the driver says the moment back, since several questions may be on their way."""
        self.say("beat", asked_s=steady_s(), carried=carried, incidents=incidents, speed=speed)

    def done(self, done: Done) -> None:
        """The last word: where each partition stands, for the next pump."""
        self.say("done", **done._asdict())

    def released(self, one: Released) -> None:
        """A partition stands still and is ours no more: where it stands, and the last account of it."""
        stand = [one.handover] if one.handover else []
        account = [one.carried] if one.carried else []
        place = {"topic": one.named.topic, "partition": one.named.partition}
        self.say("released", **place, handovers=stand, carried=account, incidents=[], speed={})

    def heard(self) -> list[Message]:
        """Every message that has come; grants are taken on the way."""
        messages = super().heard()
        for message in messages:
            self._take_grant(message)
        return messages

    def words(self) -> list[OfDesk]:
        """What has come, as values."""
        return [heard_by_pump(message) for message in self.heard()]

    def _take_grant(self, message: dict[str, Any]) -> None:
        what = message.get("what")
        if what == "grant":
            self.grant.longer(float(message["asked_s"]), float(message["grant_s"]))
        elif what == "go":
            self.grant.anew()
