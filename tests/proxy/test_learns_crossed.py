"""The proxy asks the store what had crossed of a topic that came by force; writers wait for it, and not for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines, keep_log_lines
from tests.proxy.test_crossed import KNOWN, TORN
from tests.proxy.test_moved import MINE, line
from twinshore.config.model import Cluster
from twinshore.config.settings import Settings, load_settings
from twinshore.proxy import cluster_view as module
from twinshore.proxy.cluster_view import HomesUpdate, HomeWatcher
from twinshore.proxy.lazy_store import LazyStore
from twinshore.state.core.values import HomeChange, ProgressRecord, SourceProducer
from twinshore.state.store import Store, open_store

CLUSTERS = [Cluster("east", ("127.0.0.1:1",)), Cluster("west", ("127.0.0.1:2",))]
FORCED = replace(line("west", 2, how="forced"), link="east->west", points=(112, 0))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "t.toml").write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n')
    return load_settings(tmp_path / "t.toml", {})


def heard(store: LazyStore | None, monkeypatch: pytest.MonkeyPatch) -> tuple[HomesUpdate, LogLines]:
    """What is known once nobody waits any more, and what was said. The line is younger than any."""
    monkeypatch.setattr(module, "wall_ms", lambda: FORCED.since_ms)

    async def play() -> HomesUpdate:
        follows, found = HomeWatcher("proxy", CLUSTERS, store), list[HomesUpdate]()
        follows.changed = found.append
        follows._loop = asyncio.get_running_loop()
        following = follows._tracker._following
        for one in CLUSTERS:
            following.met(one.name, f"{one.name}-id")
        following.read("west", {"shared": FORCED}, 1.0)
        follows._hear()
        assert found[-1].learns == {"shared"}, "writers wait"
        async with asyncio.timeout(10):
            while found[-1].learns:
                await asyncio.sleep(0.01)
        follows._hear()
        assert not follows._learning, "it is asked once"
        return found[-1]

    with keep_log_lines() as said:
        return asyncio.run(play()), said


def crossed(store: Store, to_offset: int) -> None:
    receipt = ProgressRecord(
        link="east->west",
        topic="shared",
        partition=0,
        from_offset=0,
        to_offset=to_offset,
        records=1,
        bytes=1,
        batches=1,
        source_end=1,
        first_ms=5_000,
        last_ms=5_000,
        lag_records=0,
    )
    store.progress.record([replace(receipt, source_producers=(SourceProducer(MINE, 3, KNOWN.batches),))])


@pytest.mark.parametrize("flipped", [False, True])
def test_the_store_says_what_had_crossed_before_its_own_flip_and_after(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, *, flipped: bool
) -> None:
    with open_store(settings.store.url) as store:
        crossed(store, 112)
        if flipped:
            flip = HomeChange(
                pair="east<>west",
                topic="shared",
                home="west",
                term=2,
                link="east->west",
                back="",
                source_topic_id="",
                target_topic_id="",
                points=(),
                since_ms=5_000,
                set_by="anna",
                torn=True,
            )
            store.topics_in_switch.change_homes([flip])
    led, said = heard(LazyStore(settings), monkeypatch)
    assert led.leads["shared"] == TORN._replace(sound=2)
    assert (led.wrote, led.unsure, said) == ({("shared", 0): {MINE: KNOWN}}, {}, [])


def test_what_the_mirror_had_not_told_is_said_and_known_as_unsure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(settings.store.url) as store:
        crossed(store, 110)
    led, said = heard(LazyStore(settings), monkeypatch)
    assert (led.wrote, led.unsure) == ({("shared", 0): {MINE: KNOWN}}, {("shared", 0): 2})
    assert [mentions(one, "shared", "2 offsets") for one in said] == [True]


def _hangs(_: LazyStore) -> Store:
    time.sleep(0.6)
    raise AssertionError("nobody waits for it")


@pytest.mark.parametrize(
    ("get", "why"),
    [(None, "there is no store"), (lambda _: None, "there is no store"), (_hangs, "does not answer within 0.2 s")],
)
def test_without_a_store_or_with_one_that_hangs_writers_go_on_and_it_is_said(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, get: Callable[[LazyStore], Store | None] | None, why: str
) -> None:
    store = LazyStore(settings) if get is not None else None
    monkeypatch.setattr(LazyStore, "get", get)
    monkeypatch.setattr(module, "PRODUCER_STATES_TIMEOUT_S", 0.2)
    led, said = heard(store, monkeypatch)
    assert (led.wrote, led.unsure) == ({}, {("shared", 0): 112})
    assert len(said) == 1 and why in said[0] and "may be written twice" in said[0]
