"""All leases of a process are renewed by one statement, and trusted on its own steady clock alone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from twinshore.config.errors import StoreError
from twinshore.runtime import lease_keeper
from twinshore.runtime.lease_keeper import LeaseKeeper, lease_renewer, read_leases, renew_leases
from twinshore.state.store import Store, open_store

LINKS = 200
TTL_S = 8.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    yield opened
    opened.close()


def until(holds: Callable[[], object], what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.02)


def counted(monkeypatch: pytest.MonkeyPatch, part: object, name: str) -> list[int]:
    """How many each call was about."""
    asked, sizes = getattr(part, name), []

    def ask(*args: Any, **more: Any) -> Any:
        sizes.append(len(args[0]))
        return asked(*args, **more)

    monkeypatch.setattr(part, name, ask)
    return sizes


def test_one_transaction_renews_the_leases_of_200_links(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    beats = counted(monkeypatch, store.leases, "renew_each")
    keepers = [LeaseKeeper(store, f"link {number}", "first", TTL_S, 0.1).begin() for number in range(LINKS)]
    until(lambda: all(one.generation() for one in keepers), lambda: [one.sentence() for one in keepers][:3])
    until(lambda: sum(beats) >= LINKS, lambda: beats)
    assert max(beats) > 20, f"they are not renewed together: {beats}"
    assert min(one.left_s() for one in keepers) > 0
    generations = [one.generation() for one in keepers]
    keepers[7].close(release=True)
    row = store.leases.read("link 7")
    assert row is not None
    assert row.released
    for one in keepers:
        one.close(release=True)
    assert generations == [1] * LINKS
    assert not lease_renewer._keepers.get(store)


@pytest.mark.parametrize("lands_s", [0.0, 40.0])
def test_a_lease_that_is_not_given_back_runs_as_long_as_something_may_land(store: Store, lands_s: float) -> None:
    may_land_s = [0.0]
    keeper = LeaseKeeper(store, "link", "first", TTL_S, 0.1, lambda: may_land_s[0]).begin()
    until(keeper.generation, keeper.sentence)
    may_land_s[0] = lands_s
    keeper.close(release=False)
    row = store.leases.read("link")
    assert row is not None
    assert (row.released, row.ttl_ms) == (False, int(1000 * max(TTL_S, lands_s)))


def test_the_holder_is_watched_since_the_lease_was_seen(store: Store) -> None:
    for name in ("dead", "alive"):
        store.leases.take(name, "first", 60_000, row=None)
    seen = {name: (row, at_s - 60) for name, (row, at_s) in read_leases(store, ["dead", "alive", "new"]).items()}
    assert seen.keys() == {"dead", "alive"}
    store.leases.renew_each([seen["alive"][0]], {"alive": 60_000})
    dead, alive = (LeaseKeeper(store, name, "second", TTL_S, 0.0).begin(seen[name]) for name in ("dead", "alive"))
    until(dead.generation, dead.sentence)
    until(lambda: "held by first" in alive.sentence(), alive.sentence)
    assert alive.generation() == 0
    for one in (dead, alive):
        one.close(release=True)


def test_one_lost_lease_is_lost_alone(store: Store) -> None:
    keepers = [LeaseKeeper(store, f"link {number}", "first", 2.0, 0.1).begin() for number in range(3)]
    until(lambda: all(one.generation() for one in keepers), lambda: [one.sentence() for one in keepers])
    seen = store.leases.read("link 1")
    assert seen is not None
    until(lambda: store.leases.take("link 1", "second", 60_000, row=store.leases.read("link 1")), lambda: "not taken")
    until(lambda: keepers[1].generation() == 0, lambda: keepers[1].left_s())
    until(lambda: "held by second" in keepers[1].sentence(), keepers[1].sentence)
    assert keepers[0].generation() == keepers[2].generation() == 1
    for one in keepers:
        one.close(release=True)
    row = store.leases.read("link 1")
    assert row is not None
    assert row.owner == "second"
    assert not row.released


def test_a_store_that_fails_is_told_and_what_is_held_runs_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = LeaseKeeper(store, "link 0", "first", 1.0, 0.1).begin()
    until(keeper.generation, keeper.sentence)

    def fails(*_: object) -> None:
        raise StoreError("the disk is full", hint="make room")

    with monkeypatch.context() as broken:
        broken.setattr(store.leases, "renew_each", fails)
        until(lambda: keeper.generation() == 0, keeper.left_s)
        assert keeper.sentence() == "the disk is full (make room)"
    until(keeper.generation, keeper.sentence)
    keeper.close(release=True)


def test_a_turn_takes_no_longer_than_renewals_can_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = store.leases.take

    def slowly(*args: Any, **more: Any) -> Any:
        time.sleep(0.05)
        return taken(*args, **more)

    monkeypatch.setattr(store.leases, "take", slowly)
    monkeypatch.setattr(lease_renewer, "join", lambda _: None)
    keepers = [LeaseKeeper(store, f"link {number}", "first", 1.0, 0.1).begin() for number in range(50)]
    renew_leases(store, keepers)
    held = [one for one in keepers if one.held()]
    assert 1 <= len(held) < 10, f"{len(held)} were taken in one turn"
    for _ in range(200):
        renew_leases(store, keepers)
        if all(one.generation() for one in keepers):
            break
    assert [one.name for one in keepers if not one.generation()] == []


PAUSED = """
import sys, time
from twinshore.runtime.lease_keeper import LeaseKeeper
from twinshore.state.store import open_store

store = open_store(sys.argv[1])
keepers = [LeaseKeeper(store, f"link {number}", "paused", 4.0, 0.0).begin() for number in range(3)]
while True:
    print(*(one.generation() for one in keepers), flush=True)
    time.sleep(0.005)
"""


def test_a_process_that_was_stopped_knows_at_once_that_its_leases_are_gone(store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    process = subprocess.Popen([sys.executable, "-c", PAUSED, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    try:
        said = ""
        while "1 1 1\n" not in said:
            got = os.read(pipe, 1 << 16).decode()
            assert got, f"it ended and took no leases: {said}"
            said = said[-100:] + got
        os.kill(process.pid, signal.SIGSTOP)
        others = [LeaseKeeper(store, f"link {number}", "second", 4.0, 0.0).begin() for number in range(3)]
        until(lambda: all(one.generation() for one in others), lambda: [one.sentence() for one in others])
        # What it had said before is read away: its pipe ends where it was stopped.
        os.set_blocking(pipe, False)
        with contextlib.suppress(BlockingIOError):
            said += os.read(pipe, 1 << 20).decode()
        os.set_blocking(pipe, True)
        os.kill(process.pid, signal.SIGCONT)
        after = ""
        while after.count("\n") < 10:
            after += os.read(pipe, 1 << 16).decode()
        # A line that was half said when it stopped was judged before that.
        first = after if said.endswith("\n") else after.partition("\n")[2]
        assert set(first.split("\n")[1:-1]) == {"0 0 0"}, f"{said[-20:]!r}, then {first[:60]!r}"
        assert [one.generation() for one in others] == [2, 2, 2]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    for one in others:
        one.close(release=True)


def test_where_no_thread_is_left_the_next_one_to_join_begins_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was listed without a thread kept all that came later from having one."""

    def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(lease_keeper, "supervise", none_left)
        with pytest.raises(RuntimeError):
            LeaseKeeper(store, "link 0", "first", 1.0, 0.1).begin()
    assert not lease_renewer._keepers.get(store)
    keeper = LeaseKeeper(store, "link 0", "first", 1.0, 0.1).begin()
    until(keeper.generation, keeper.sentence)
    keeper.close(release=True)
