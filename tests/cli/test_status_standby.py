"""What `twinshore status` says of a mirror that stands by for the one that carries the link."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.replication.core.lag import standby_row
from twinshore.state.core.values import LinkStatus
from twinshore.state.store import Store

WHO = "b-host process 3 5f"
WAITS = "held by a-host process 7; standing by, to take over 9 s after its last sign of life"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_settings(tmp_path, '[links."east->west"]')


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with opened(file) as found:
        yield found


def carried(store: Store, ago_s: float) -> None:
    updated_ms = int((time.time() - ago_s) * 1000)
    store.links.save_status(LinkStatus(LINK, "a-host process 7 1a", "flowing", "2 partitions on 1 task", updated_ms, 1))


def stands_by(store: Store, ago_s: float) -> None:
    said_ms = int((time.time() - ago_s) * 1000)
    store.link_states.remember([standby_row(LINK, WHO, WAITS, said_ms)])


def status(file: Path) -> str:
    return asking.run(file, "status", "--link", LINK)


def test_who_stands_by_is_named_and_nobody_is_told_to_start_another(file: Path, store: Store) -> None:
    """Whether the standby lives was nowhere to be seen; behind a killed mirror the advice was to start one."""

    def said() -> object:
        (found,) = json.loads(asking.run(file, "status", "--link", LINK, "--json"))["links"]
        return found["standby"]

    carried(store, 0)
    assert "stands by" not in status(file)
    stands_by(store, 0)
    assert f"{LINK}: b-host process 3 stands by: {WAITS}" in status(file)
    assert said() == {"who": WHO, "sentence": WAITS}
    carried(store, 100)
    stands_by(store, 0)
    text = status(file)
    assert "cannot write the store. b-host process 3 stands by, and takes over; last said: flowing" in text
    assert "Unless it runs" not in text
    stands_by(store, 100)
    assert "Unless it runs: `twinshore mirror run`" in status(file), "it says nothing any more"
    assert said() is None
