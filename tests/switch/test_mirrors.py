"""Nobody is held for a mirror that is not there: its lease is looked at, and seen renewed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinshore.state.store import Store, open_store
from twinshore.switch import drain
from twinshore.switch.core.steps import StepFailed, StepPending
from twinshore.switch.drain import MirrorWatch

LINK, NAME = "east->west", "link east->west"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def test_where_nobody_carries_the_link_it_is_said_at_once(store: Store) -> None:
    watch = MirrorWatch(store, LINK, 10.0)
    assert isinstance(watch.check_alive(), StepFailed)
    row = store.leases.take(NAME, "anna", 10_000, row=None)
    assert row is not None
    assert isinstance(watch.check_alive(), StepPending)
    store.leases.release(row)
    assert isinstance(watch.check_alive(), StepFailed)


def test_a_mirror_is_seen_at_work_and_not_asked_for_again(store: Store) -> None:
    row = store.leases.take(NAME, "anna", 10_000, row=None)
    assert row is not None
    watch = MirrorWatch(store, LINK, 10.0)
    assert isinstance(watch.check_alive(), StepPending)
    beaten = store.leases.renew_each([row], {NAME: 10_000})[NAME]
    assert watch.check_alive() is None
    store.leases.release(beaten)
    assert watch.check_alive() is None


def test_one_that_died_is_named_once_its_lease_has_run_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [100.0]
    monkeypatch.setattr(drain, "steady_s", lambda: now_s[0])
    store.leases.take(NAME, "anna", 10_000, row=None)
    watch = MirrorWatch(store, LINK, 10.0)
    assert isinstance(watch.check_alive(), StepPending)
    now_s[0] += 14.0
    assert isinstance(watch.check_alive(), StepPending)
    now_s[0] += 1.0
    ended = watch.check_alive()
    assert isinstance(ended, StepFailed)
    assert "anna" in ended.sentence


def test_past_the_point_of_no_return_a_mirror_that_is_away_is_told_and_heard_when_it_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(drain, "steady_s", lambda: now_s[0])
    silence = MirrorWatch(store, LINK, 10.0)
    away = "waits for the mirror of east->west, which gives no sign of life"
    assert silence.waiting("it makes orders anew").sentence.startswith(away)
    row = store.leases.take(NAME, "anna", 10_000, row=None)
    assert row is not None
    assert silence.waiting("it makes orders anew") == StepPending("it makes orders anew")
    now_s[0] += 15.0
    assert silence.waiting("it makes orders anew").sentence.startswith(away)
    store.leases.renew_each([row], {NAME: 10_000})
    assert silence.waiting("it makes orders anew") == StepPending("it makes orders anew")
