"""Proofs of what really mirrors: in a mirror's own Spark while traffic flows, and of MirrorMaker 2's copies."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from testkit import log_kinds
from testkit.copiers import CopyJob, MirrorMaker
from testkit.watermarks import TopicEndReader
from tests.scenarios.mirror_rig import Rig, settings_text, until
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import TopicPartition
from twinshore.config.settings import load_settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.leader_queries import OffsetKind
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.produce import Workload
from twinshore.proof.core.model import CompareMode
from twinshore.proof.core.planning import ProofOptions
from twinshore.proof.jobs import run_bundle_in_process
from twinshore.proof.rounds import ProofRounds
from twinshore.state.core.values import ProofRow, ProofState
from twinshore.state.store import open_store

pytestmark = pytest.mark.timeout(600)  # Spark starts first, beside whatever else this machine does
LINK = "east->west"
PLAIN, TRANSACTIONS = "beside-plain", "beside-transactions"


def kept(folder: Path) -> dict[tuple[str, int], ProofRow]:
    """What the store says is proven."""
    with open_store(f"sqlite:///{folder / 'store.db'}") as store:
        return {(row.topic, row.partition): row for row in store.proofs.of(LINK) if row.topic.startswith("beside-")}


def ends(cluster: LabCluster) -> dict[tuple[str, int], int]:
    kafka = KafkaCluster(cluster.cluster)
    try:
        parts = [TopicPartition(topic, number) for topic in (PLAIN, TRANSACTIONS) for number in range(2)]
        found = kafka.list_offsets(parts, OffsetKind.LAST_STABLE)
        return {(named.topic, named.partition): end for named, end in found.items()}
    finally:
        kafka.close()


@pytest.mark.long
@pytest.mark.claim(
    "groups",
    "proof-while-mirroring",
    "links are proven beside the mirror while traffic flows, and their parts add up to one proof of the whole",
)
def test_links_are_proven_beside_the_mirror_while_traffic_flows(
    east: LabCluster, west: LabCluster, tmp_path: Path
) -> None:
    for topic in (PLAIN, TRANSACTIONS):
        east.create_topic(topic, partitions=2)
    limits = {"task_run_s": 3, "refresh_s": 1, "tasks_per_link": 2}
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: "beside-.*"}, mirror=limits)
    rig = Rig(tmp_path, text + "[proof]\nbeside_mirror = true\nevery_s = 1\n", spark=True)
    rig.process.start()
    try:
        with Workload(east.cluster, PLAIN, records_per_s=4_000) as workload:
            log_kinds.transactional(east, TRANSACTIONS, seed=5, steps=60)
            until(lambda: len(kept(tmp_path)) == 4, 240, "a proof of every partition", rig)
            early = kept(tmp_path)
            until(
                lambda: all(
                    row.to_offset > early[at].to_offset for at, row in kept(tmp_path).items() if at[0] == PLAIN
                ),
                30,
                "proofs that go on while traffic flows",
                rig,
            )
            assert workload.stop() > 0
        want = ends(east)
        until(lambda: {at: row.to_offset for at, row in kept(tmp_path).items()} == want, 60, "all of it proven", rig)
    finally:
        rig.process.end()
    rows = kept(tmp_path)
    assert {row.state for row in rows.values()} == {ProofState.IDENTICAL}
    assert {row.mode for row in rows.values()} == {CompareMode.EXACT.value}
    register_verbs()
    words = ["prove", "--settings", str(rig.process.settings), "--again", "--here", "--json"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    again = json.loads(result.stdout)
    assert (result.exit_code, again["state"]) == (0, "identical"), result.stdout
    made = {(one["topic"], one["partition"]): one["digest"] for one in again["partitions"]}
    assert {at: made[at] for at in rows} == {at: row.digest for at, row in rows.items()}, "parts add up to the whole"


@pytest.mark.claim("groups", "proof-mirror-maker", "what MirrorMaker 2 copied is proven by content")
@pytest.mark.long
def test_what_mirror_maker_copied_is_proven_by_content(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    topic, records = "maker", 5_000
    east.create_topic(topic, partitions=2)
    producer = Producer({**client_settings(east.cluster), "compression.type": "lz4"})
    for number in range(records):
        producer.produce(topic, b"value %d" % number, b"key %d" % number, headers=[("n", b"%d" % number)])
        if number % 500 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0
    job = CopyJob(east.cluster, west.cluster, topic, run=1)
    maker = MirrorMaker()
    twin = maker.target_topic(job)
    child = maker.start(job, tmp_path)
    try:
        end = TopicEndReader(west.cluster, twin, 2)
        deadline = time.monotonic() + 90
        while end.records() < records:
            assert time.monotonic() < deadline, "MirrorMaker copies nothing"
            time.sleep(0.2)
    finally:
        child.end()
    settings = tmp_path / "twinshore.toml"
    text = settings_text(tmp_path, [east.cluster, west.cluster], {LINK: topic})
    text = text.replace("[clusters.east]", "[clusters.east1]").replace('"east->', '"east1->')
    settings.write_text(text.replace(f"['{topic}']", f"['{topic}']\nnaming = 'prefix'"))
    loaded = load_settings(settings, {})
    assert loaded.links[0].twin_of(topic) == twin
    wishes = ProofOptions(range_records=700)
    with open_store(f"sqlite:///{tmp_path}/proof.db") as store:
        proving = ProofRounds(loaded, store, run_bundle_in_process, options=wishes, tasks=1, mode=CompareMode.CONTENT)
        report = proving.round(loaded.links, [topic])
    assert sum(one.row.records for one in report.partitions) == records
    assert not report.differs and not report.incomplete
