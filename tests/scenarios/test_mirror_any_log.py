"""Logs of every kind have exact twins: same offsets, same start and end, same records for every consumer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.scenarios import log_kinds
from tests.scenarios.log_kinds import COMPACTED, SOURCE_SETTINGS, seen
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from twinshore.lab import KAFKA_3, KAFKA_NEWEST, LabCluster

LINK = "here->there"
LATE_START = 1_000_123
MIRROR = {"tide_s": 4, "refresh_s": 1}


class Kind(NamedTuple):
    """How a topic of this kind is made and filled."""

    settings: dict[str, str]
    fill: Callable[[LabCluster, str], None]


KINDS = {
    "transactional": Kind({}, lambda cluster, topic: log_kinds.transactional(cluster, topic, 1)),
    "compacted": Kind(COMPACTED, lambda cluster, topic: log_kinds.compacted(cluster, topic)),
    "compacted-transactional": Kind(
        COMPACTED, lambda cluster, topic: log_kinds.compacted(cluster, topic, transactions=True)
    ),
    "late": Kind({}, lambda cluster, topic: log_kinds.late(cluster, topic, LATE_START)),
    "late-compacted": Kind(
        {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
        lambda cluster, topic: log_kinds.late(cluster, topic, 777),
    ),
    "append-time": Kind(
        {"message.timestamp.type": "LogAppendTime"},
        lambda cluster, topic: log_kinds.plain(cluster, topic, codec="gzip"),
    ),
    "empty": Kind({}, lambda _cluster, _topic: None),
}


class Pair(NamedTuple):
    source: LabCluster
    target: LabCluster
    rig: Rig


@pytest.fixture(scope="module", params=[(KAFKA_NEWEST, KAFKA_3), (KAFKA_3, KAFKA_NEWEST)], ids=lambda pair: pair[0])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two clusters of different versions, topics of all kinds, and a mirror that starts when they are there."""
    older, newer = request.param
    with (
        LabCluster("here", version=older, heap_mb=384, settings=SOURCE_SETTINGS) as source,
        LabCluster("there", version=newer, heap_mb=384) as target,
    ):
        for name, kind in KINDS.items():
            source.create_topic(f"any-{name}", partitions=2, settings=kind.settings)
            kind.fill(source, f"any-{name}")
        folder = tmp_path_factory.mktemp("any")
        made = Rig(folder, settings_text(folder, [source.cluster, target.cluster], {LINK: "any-.*"}, mirror=MIRROR))
        made.process.start()
        try:
            made.until_said("partitions on", within_s=90)
            yield Pair(source, target, made)
        finally:
            made.process.end()


def same_spans(pair: Pair, topic: str) -> bool:
    ours = spans(pair.source.cluster, topic, 2)
    return ours == spans(pair.target.cluster, topic, 2) and ours[0] != (-1, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_twin_is_exact(pair: Pair, kind: str) -> None:
    topic = f"any-{kind}"
    took_s = until(lambda: same_spans(pair, topic), 60, f"{topic}: same start and end", pair.rig)
    for partition in range(2):
        committed = [seen(side, topic, partition, committed=True) for side in (pair.source, pair.target)]
        every = [seen(side, topic, partition) for side in (pair.source, pair.target)]
        if KINDS[kind].settings.get("cleanup.policy", "delete") == "delete":
            assert committed[0] == committed[1]
            assert [one for one in every[0] if one in committed[0]] == every[1], "all but the aborted ones"
        else:
            # Both sides go on compacting by themselves: the latest of each key, and what both still have.
            assert latest(committed[0]) == latest(committed[1])
            theirs = {one[0]: one for one in committed[1]}
            assert all(theirs.get(one[0], one) == one for one in committed[0])
    print(f"{topic}: {took_s:.1f} s after the others")


def latest(records: list[log_kinds.Seen]) -> dict[object, object]:
    values = {key: value for _, key, value, _, _ in records}
    return {key: value for key, value in values.items() if value is not None}


def test_transactions_go_on_crossing(pair: Pair) -> None:
    """Written while the mirror carries them, over the borders of its tides."""
    began_s = time.monotonic()
    for seed in range(2, 5):
        log_kinds.transactional(pair.source, "any-transactional", seed, steps=60)
    until(lambda: same_spans(pair, "any-transactional"), 60, "all crossed", pair.rig)
    print(f"{time.monotonic() - began_s:.1f} s")
    for partition in range(2):
        ours, theirs = (
            seen(side, "any-transactional", partition, committed=True) for side in (pair.source, pair.target)
        )
        assert ours == theirs
    assert not pair.rig.ledger(LINK)
