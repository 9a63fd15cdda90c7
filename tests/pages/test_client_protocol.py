"""The page for authors of clients: its lines are lines, and what it says of bounds and times is so."""

from __future__ import annotations

import json
import re
from pathlib import Path

from twinshore.routing.core.home_records import HomeLog, HomeState
from twinshore.routing.core.subscribers import (
    LEASE_MS_MAX,
    POLL_INTERVAL_S,
    RENEW_INTERVAL_S,
    SWITCH_POLL_INTERVAL_S,
    SubscriberLog,
)
from twinshore.routing.homes_topic import HOMES_SETTINGS, SUBSCRIBERS_SETTINGS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client-protocol.md").read_text()
HOME, FOLLOWER = (block.strip().split("\n") for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))


def test_its_home_line_is_one_and_is_written_as_ours_are() -> None:
    key, value = (line.encode() for line in HOME)
    log = HomeLog()
    log.take(key, value)
    line = log.homes["orders"]
    assert (line.word, line.state, line.points) == ((2, 0), HomeState.SETTLED, (1200, 800, 800, 800))
    assert [json.loads(one or b"") for one in line.line()] == [json.loads(key), json.loads(value)]
    assert set(re.findall(r"`(settled|announced|held)`: ", PAGE)) == {*HomeState}


def test_its_follower_line_is_one() -> None:
    key, value = (line.encode() for line in FOLLOWER)
    log = SubscriberLog()
    log.take(key, value, 0.0)
    (follower,) = log.living(4.9)
    assert log.living(5.1) == []
    assert follower.waits("orders", (2, 1))
    assert [json.loads(one or b"") for one in follower.line()] == [json.loads(key), json.loads(value)]


def test_its_times_are_those_of_the_library() -> None:
    assert f"at most {LEASE_MS_MAX:,}" in PAGE
    assert (POLL_INTERVAL_S, RENEW_INTERVAL_S) == (1.0, 1.0)
    assert f"every {1000 * SWITCH_POLL_INTERVAL_S:.0f} ms while" in PAGE
    assert HOMES_SETTINGS["cleanup.policy"] == "compact"
    assert SUBSCRIBERS_SETTINGS["retention.ms"] == "3600000"
