"""How many files a record, a Produce request and a switch enter, on real brokers. ARCHITECTURE.md lists these files."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.proxy.served import ProxyProcess
from tests.scenarios.files_entered import Way, entered_by_most, walks_of, watched_module
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until
from tests.scenarios.switch_rig import QUICK, SwitchRig, ended
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.processes import ChildProcess, start_child

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "files-entered"
REQUESTS = 40
JOINED_MIN = 10
JOINS = "kafka/protocol/batch_join.py"
# How many files of each package at most.
RECORD_MAX = {"replication": 12, "kafka": 9}
PROXY_MAX = 12
SWITCH_MAX = 12

# From the source's socket to the target's; from the client's to the broker's, and back; from the plan to the last step.
RECORD = Way("SourceConnection.receive", "TargetConnection.send")
REQUEST = Way("ClientConnection.buffer_updated", "BrokerConnection.ask")
RESPONSE = Way("BrokerConnection.buffer_updated", "BrokerConnection.buffer_updated")
SWITCH = Way("plan_switch", "run_switch_plan", all_threads=True)


def listed(section: str, base: str) -> set[str]:
    """The files in the numbered list of this section of ARCHITECTURE.md. `base`: the folder of those of no package."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    items = re.findall(r"^\d+\. .*(?:\n   .*)*", text, re.MULTILINE)
    names = re.findall(r"`([a-z_/]+\.py)`", "\n".join(items))
    return {name if name.startswith("kafka/") else f"{base}/{name}" for name in names}


def assert_listed(found: set[str], section: str, base: str) -> None:
    told = listed(section, base)
    assert found == told, f"not listed: {sorted(found - told)}; not entered: {sorted(told - found)}"


def of_package(files: Sequence[str], package: str) -> list[str]:
    return [name for name in files if name.startswith(f"{package}/")]


@pytest.fixture(scope="module")
def stage(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SwitchRig]:
    """A mirror both ways whose calls are watched, and a topic at home on east."""
    folder = tmp_path_factory.mktemp("entered")
    east.create_topic(TOPIC)
    watched = watched_module(folder / "mirror", RECORD)

    def start(command: Sequence[str], **given: Any) -> ChildProcess:
        return start_child([*command[:2], *watched, *command[2:]], **given)

    links = {"east->west": TOPIC, "west->east": TOPIC}
    rig = Rig(folder, settings_text(folder, [east.cluster, west.cluster], links, mirror=QUICK), start=start)
    rig.process.start()
    try:
        yield SwitchRig(rig, TOPIC, east, west, partitions=1)
    finally:
        rig.process.end()


@pytest.mark.claim(
    "nouns",
    "record",
    "between the read of a fetch and the send of its batch a record enters at most 12 files of `replication` and 9 of "
    "`kafka`, which ARCHITECTURE lists",
)
def test_a_record_enters_few_files(stage: SwitchRig) -> None:
    settings = {**client_settings(stage.east.cluster), "linger.ms": 0, "batch.num.messages": 1}
    producer, file = Producer(settings), stage.rig.folder / "mirror"

    def joined() -> list[list[str]]:
        return [walk for walk in walks_of(file) if JOINS in walk]

    for sent in range(1, REQUESTS + 1):
        producer.produce(TOPIC, b"alone")
        producer.flush()
        until(lambda: spans(stage.west.cluster, TOPIC, 1) == [(0, sent)], 120, "carried", stage.rig)  # noqa: B023
    # The loops that join batches may have to be compiled first.
    until_s = time.monotonic() + 240
    while len(joined()) < JOINED_MIN:
        assert time.monotonic() < until_s, "no batches were joined"
        for _ in range(100):
            producer.produce(TOPIC, b"joined")
        producer.flush()
    kinds = {"alone": [walk for walk in walks_of(file) if JOINS not in walk], "joined": joined()}
    found = {kind: entered_by_most(walks, *RECORD_MAX) for kind, walks in kinds.items()}
    for kind, files in found.items():
        counts = {package: len(of_package(files, package)) for package in RECORD_MAX}
        print(f"told: {kind}: " + ", ".join(f"{count} of `{package}`" for package, count in counts.items()))
        for package, most in RECORD_MAX.items():
            assert counts[package] <= most, f"{kind}: {' '.join(of_package(files, package))}"
    assert_listed({name for files in found.values() for name in files}, "A record's way", "replication/task")


@pytest.mark.claim(
    "nouns",
    "produce",
    "a Produce request through the proxy and its response enter at most 12 files of `proxy`, which ARCHITECTURE lists",
)
def test_a_produce_request_enters_few_files(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    east.create_topic(f"{TOPIC}-proxy")
    proxy = ProxyProcess(tmp_path, [east.cluster, west.cluster])
    try:
        proxy.start((*watched_module(tmp_path / "proxy", REQUEST, RESPONSE), "twinshore.cli"))
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "acks": "all", "log_level": 2})
        for _ in range(REQUESTS):
            producer.produce(f"{TOPIC}-proxy", b"x")
            assert producer.flush(60) == 0
    finally:
        proxy.close()
    ways = [walks_of(tmp_path / "proxy", way) for way in (0, 1)]
    assert min(map(len, ways)) >= REQUESTS
    found = {name for walks in ways for name in entered_by_most(walks, "proxy")}
    print(f"told: {len(found)} of `proxy`")
    assert len(found) <= PROXY_MAX, found
    assert_listed(found, "A request's way through the proxy", "proxy")


@pytest.mark.claim(
    "nouns",
    "switch",
    "a planned switch enters at most 12 files of `switch`, from its plan to its last step, which ARCHITECTURE lists",
)
def test_a_switch_enters_few_files(stage: SwitchRig) -> None:
    file = stage.rig.folder / "switch"
    words = ("run", TOPIC, "--to", "west", "--yes")
    child, log = stage.begin(*words, module=(*watched_module(file, SWITCH), "twinshore.cli"))
    assert ended(child, log) == 0, log.read_text("utf-8")
    found = entered_by_most(walks_of(file), "switch")
    print(f"told: {len(found)} of `switch`")
    assert len(found) <= SWITCH_MAX, found
    assert_listed(set(found), "A switch's steps", "switch")
