"""What was proven is read again on real brokers: a history that parted below a proof is told by the next pass."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import twinshore
from testkit.cluster import RigCluster
from tests.scenarios.incident_stage import QUICK, cut_to, down_and_up, log_file
from tests.scenarios.mirror_rig import until
from tests.scenarios.pair_of_logs import AT, COUNT, log, made, said, write
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import TopicPartition
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.state.core.values import IncidentRow
from twinshore.state.store import open_store

HOUR_MS = 3_600_000


@pytest.fixture
def source() -> Iterator[RigCluster]:
    """One of the test's own: its log is cut."""
    cluster = RigCluster("east", jvm_flags=QUICK)
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.mark.long
@pytest.mark.claim(
    "groups",
    "proof-never-rests",
    "a history that parted below a proof, with equal borders, is told at its offset by the next pass over all",
)
def test_a_history_that_parted_below_a_proof_is_told_by_the_next_pass(
    source: RigCluster, west: RigCluster, tmp_path: Path
) -> None:
    with closing(KafkaCluster(source.cluster)) as ours, closing(KafkaCluster(west.cluster)) as theirs:
        topic = made((ours, theirs), log(), log())
    how = ("--topic", topic, "--mode", "exact")
    assert said(tmp_path, source, west, topic, *how, "--here")[0] == 0

    (broker,) = source.brokers
    down_and_up(broker, lambda: shorten(log_file(source, topic, 0)))
    named = TopicPartition(topic, 0)
    with closing(KafkaCluster(source.cluster)) as ours:
        until(lambda: end_of(ours, named) > 0, 30, "the source shows its shorter log")
        parted = end_of(ours, named)
        assert parted <= AT
        others = [record._replace(value=b"of another history") for record in log()[parted:]]
        write(ours, topic, [record._replace(offset=n) for n, record in enumerate(others)], random.Random(5))
        until(lambda: end_of(ours, named) == COUNT, 30, "it ends where it did before")
    assert said(tmp_path, source, west, topic, *how, "--here")[0] == 0, "no border tells it"

    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        (row,) = store.proofs.of()
        store.proofs.save([replace(row, oldest_ms=row.oldest_ms - HOUR_MS)])  # As if it had been proven an hour ago.
        told = found_by_a_pass(tmp_path, how)
    assert (told.incident.kind, told.incident.from_offset) == (IncidentKind.CONTENT_DIFFERS, parted)
    code, text = said(tmp_path, source, west, topic, *how, "--here")
    assert code == 1 and f"DIFFERS at offset {parted}: changed value" in text


def shorten(path: Path) -> None:
    """The log loses what lies from there on. Its indices would point beyond its end, and are made anew."""
    cut_to(path, AT)
    for index in path.parent.glob("*index"):
        index.unlink()


def end_of(kafka: KafkaCluster, named: TopicPartition) -> int:
    return kafka.list_offsets([named], OffsetKind.LAST_STABLE)[named]


def found_by_a_pass(folder: Path, how: tuple[str, ...]) -> IncidentRow:
    """The row that a continuous proof, a process of its own, adds to the ledger."""
    words = ["prove", "--settings", str(folder / "twinshore.toml"), *how, "--here", "--continuous", "--every", "2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(twinshore.__file__).parent.parent)}
    with (folder / "prove.log").open("w+") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "twinshore.cli", *words], stdout=out, stderr=out, cwd=folder, env=environment
        )
        try:
            deadline = time.monotonic() + 120
            while True:
                with open_store(f"sqlite:///{folder / 'store.db'}") as store:
                    rows = store.incidents.rows(open_only=True)
                if rows:
                    break
                assert child.poll() is None and time.monotonic() < deadline, (folder / "prove.log").read_text()
                time.sleep(0.2)
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)
    assert "read again" in (folder / "prove.log").read_text()
    (found,) = rows
    return found
