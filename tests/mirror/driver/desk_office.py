"""A desk with pumps at its door, for tests over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from twinshore.fleet import Cluster
from twinshore.mirror.driver.desk import Account, Desk
from twinshore.mirror.lane.orders import TideOrder
from twinshore.mirror.pump.desk_line import DeskLine
from twinshore.service.clock import steady_s

LINK = "east->west"
KEY = (LINK, 0)
GRANT_S = 2.0


class Office:
    """A desk, what it was told, and for how long the link is ours."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.allowed_s = 100.0
        self.pumps: list[DeskLine] = []
        self.desk = Desk("127.0.0.1", allowed_s=lambda _: self.allowed_s, take=self.accounts.append)
        self.desk.open_lane(KEY, GRANT_S)

    def order(self, tide: int, *, token: str = "") -> TideOrder:
        cluster = Cluster("east", ("127.0.0.1:1",))
        desk = self.desk
        at = {"desk_host": desk.host, "desk_port": desk.port, "desk_token": token or desk.token}
        return TideOrder(LINK, 0, tide, cluster, cluster, producer_id=1, producer_epoch=0, state_expiry_ms=1, **at)  # type: ignore[arg-type]

    def pump(self, tide: int, *, token: str = "") -> DeskLine:
        self.pumps.append(DeskLine(self.order(tide, token=token)))
        return self.pumps[-1]


def heard(line: DeskLine, *whats: str, within_s: float = 3.0) -> dict[str, Any]:
    """Messages up to one of these kinds; that one is returned."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        for message in line.heard():
            if message["what"] in whats:
                return message
        time.sleep(0.01)
    raise AssertionError(f"none of {whats} came")


def until(holds: Callable[[], bool], within_s: float = 3.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def going(office: Office, tide: int = 0) -> DeskLine:
    return begun(office.pump(tide))


def begun(line: DeskLine) -> DeskLine:
    heard(line, "assign")
    line.say("ready")
    heard(line, "go")
    line.beat([], [], {})
    heard(line, "grant")
    assert line.grant.holds(steady_s())
    return line
