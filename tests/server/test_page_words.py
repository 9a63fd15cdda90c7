"""What pages say: never that all is well where something is old, unknown or left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.kafka.clock import wall_ms
from twinshore.monitoring.link_status import LinkLag, LinkView, TopicView
from twinshore.server import pages
from twinshore.server.core.access import Caller
from twinshore.server.core.catalogue import Role
from twinshore.server.core.snapshots import BEHIND, FINE, PAUSED, UNKNOWN, link_row, overview_row, topic_rows
from twinshore.server.core.words import verdict
from twinshore.server.layout import Visit
from twinshore.state.core.platform_values import SnapshotKind, SnapshotRow
from twinshore.state.store import Store, open_store

NAME = "east->west"
TOPIC = TopicView("orders", 1, 0, 5, 5, 0, 0, 5, 50, recovery_point_s=0.0)
LEVEL = LinkView(NAME, "flowing", None, 0.0, LinkLag(0, 1.0, "mirror", 0, 0.0), (TOPIC,), ())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def seen(view: LinkView, at_ms: int = 1) -> tuple[SnapshotRow, ...]:
    """Snapshots of the link, its topics, and of all."""
    link, topics = link_row(view, at_ms), list(topic_rows(view, [], [], at_ms))
    return link, *topics, overview_row([link], topics, [view], [], at_ms)


def visit(store: Store, path: str = "/") -> Visit:
    return Visit(store, Caller("ada", Role.ADMIN, "x"), path, {}, wall_ms())


@pytest.mark.parametrize(
    ("view", "rank"),
    [
        (LEVEL, FINE),
        (replace(LEVEL, lag=LinkLag(0, 1.0, "mirror", 3)), UNKNOWN),
        (replace(LEVEL, lag=None), UNKNOWN),
        (replace(LEVEL, lag=LinkLag(2, 1.0, "mirror")), BEHIND),
        (replace(LEVEL, topics=(replace(TOPIC, lag_records=None),)), UNKNOWN),
        (replace(LEVEL, topics=(replace(TOPIC, lag_records=None, excluded=True),)), PAUSED),
    ],
)
def test_only_what_is_known_and_level_is_fine(view: LinkView, rank: int) -> None:
    found = seen(view)[-1]
    said = verdict(json.loads(found.value))
    assert found.rank == rank
    assert said.startswith("Everything is replicated") == (rank == FINE)
    assert ("excluded" in said) == (rank == PAUSED)


def test_what_is_old_is_not_known(store: Store) -> None:
    group = replace(link_row(LEVEL, 1), kind=SnapshotKind.GROUP, subject=f"{NAME}/billing")
    values = {"kind": "classic", "source_state": "", "target_state": "", "offsets": [], "why": ""}
    group = replace(group, value=json.dumps(values))
    for at_ms, rank in ((wall_ms(), FINE), (wall_ms() - 90_000, UNKNOWN)):
        store.snapshots.save([replace(row, at_ms=at_ms) for row in (*seen(LEVEL), group)])
        shown = [show(visit(store, path)) for path, show in pages.PAGES.items() if path in ("/", "/links", "/topics")]
        shown += [pages.groups_page(visit(store)), pages.group_page(visit(store), NAME, "billing")]
        shown += [pages.link_page(visit(store), NAME), pages.topic_page(visit(store), NAME, "orders")]
        assert [page.rank for page in shown] == [rank] * 7
        assert {str(page.lead).startswith("Not known since ") for page in shown} == {rank == UNKNOWN}
