"""Many links of a cluster that does not answer: a verb waits for it once, not once for each of them."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.kafka.peers import peer
from twinshore.config.settings import parse_settings
from twinshore.monitoring import link_status as looking
from twinshore.monitoring.link_status import read_link_views
from twinshore.replication.operations import run_plan
from twinshore.replication.operations.run_plan import plan_run
from twinshore.state.core.values import TwinRow
from twinshore.state.store import Store, open_store

MANY = 8


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(f"sqlite:///{tmp_path / 'store.db'}")


class Mute:
    """Hangs up on each connection, and counts them."""

    def __init__(self) -> None:
        self.dials = 0

    def __call__(self, _: socket.socket) -> None:
        self.dials += 1


def settings_of(address: tuple[str, int], links: int) -> str:
    targets = [f"to{number}" for number in range(links)]
    host, port = address
    clusters = "".join(f'[clusters.{name}]\nbootstrap = ["{name}.invalid:9092"]\n' for name in targets)
    named = "".join(f'[links."east->{name}"]\n' for name in targets)
    return f'[clusters.east]\nbootstrap = ["{host}:{port}"]\n{clusters}{named}'


def dials_of_a_plan(store: Store, links: int) -> int:
    mute = Mute()
    with peer(mute) as address:
        settings = parse_settings(settings_of(address, links), name="test", env={})
        found = plan_run([], settings, store)
    assert len(found.away) == links and not found.steps
    return mute.dials


def test_a_plan_of_many_links_dials_it_no_oftener_than_a_plan_of_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_plan, "PREVIEW_PATIENCE_S", 1.0)
    alone = dials_of_a_plan(store, 1)
    assert alone >= 2
    assert dials_of_a_plan(store, MANY) < 2 * alone + MANY / 2


def test_status_waits_for_it_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "SOURCE_TIMEOUT_S", 0.5)
    dials: list[int] = []
    for links in (1, MANY):
        mute = Mute()
        with peer(mute) as address:
            settings = parse_settings(settings_of(address, links), name="test", env={})
            store.twins.save([TwinRow(link.name, "orders", 0, "aa", "bb", 0, 0, 5) for link in settings.links])
            views = read_link_views(store, settings, [], clock=lambda: time.time_ns() // 1_000_000)
        assert len(views) == links
        dials.append(mute.dials)
    assert dials[0] >= 2
    assert dials[1] < 2 * dials[0] + MANY / 2
