"""`twinshore lab up|down|status` through the command itself: clusters that outlive it, and go when told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster
from twinshore.lab.background_clusters import bring_down, bring_up, list_background_clusters
from twinshore.lab.clients import create_admin_client, create_topic
from twinshore.lab.processes import get_process_identity

pytestmark = pytest.mark.claim(
    "topics",
    "lab-down",
    "`lab down` removes folders that `lab up` marked, and no others that look alike",
)


def lab(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinshore.cli", "lab", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)


@pytest.mark.long
def test_clusters_stay_after_up_and_are_gone_after_down(tmp_path: Path) -> None:
    folder = tmp_path / "stand"
    assert json.loads(lab("status", "--json", "--dir", folder).stdout) == []
    try:
        up = lab("up", "--dir", folder, "--clusters", "north,south")
        assert up.returncode == 0, up.stderr
        snippet = tomllib.loads(up.stdout[up.stdout.index("[clusters") :])
        assert list(snippet["links"]) == ["north->south"]
        for name, entry in snippet["clusters"].items():
            create_topic(Cluster(name, tuple(entry["bootstrap"])), "stays")

        again = lab("up", "--dir", folder, "--clusters", "north,south", "--json")
        stand = json.loads(again.stdout)
        assert [(one["name"], one["state"]) for one in stand] == [("north", "up"), ("south", "up")]
        assert (
            "stays"
            in create_admin_client(Cluster("north", tuple(stand[0]["bootstrap"]))).list_topics(timeout=10).topics
        )

        for topic in ("bare", "bare"):
            made = lab("fill", "--dir", folder, "--cluster", "north", "--topic", topic, "--records", 0)
            assert made.stdout == "north: bare has 4 partitions\n", made.stderr
        for said in ("10 records appended to sold, which has 3 partitions", "10 records appended to sold"):
            filled = lab(
                "fill", "--dir", folder, "--cluster", "north", "--topic", "sold", "--records", 10, "--partitions", 3
            )
            assert said in filled.stdout, filled.stderr
        parts = [TopicPartition("sold", number) for number in range(3)]
        consumer = Consumer({"bootstrap.servers": stand[0]["bootstrap"][0], "group.id": "look"})
        assert sum(consumer.get_watermark_offsets(part, timeout=20)[1] for part in parts) == 20
        consumer.close()
        nobody = lab("fill", "--dir", folder, "--cluster", "west")
        assert (nobody.returncode, "[cli.cluster-not-up]" in nobody.stderr) == (2, True)

        other = lab("up", "--dir", folder, "--clusters", "north", "--brokers", "3")
        assert (other.returncode, "[lab.already-up]" in other.stderr) == (2, True)

        pids = [broker["pid"] for one in stand for broker in one["brokers"]]
        marks = [get_process_identity(pid) for pid in pids]
        marks[1].end()
        states = {one.name: one.state for one in list_background_clusters(folder)}
        assert states == {"north": "up", "south": "down"}

        dark = lab("stop", "north", "--dir", folder)
        assert "its data stays" in dark.stderr and not marks[0].alive(), dark.stderr
        assert "none of them runs" in lab("stop", "north", "--dir", folder).stdout
        back = lab("start", "north", "south", "--dir", folder)
        assert back.returncode == 0, back.stderr
        marks += [get_process_identity(one.brokers[0].pid) for one in list_background_clusters(folder)]
        assert [one.state for one in list_background_clusters(folder)] == ["up", "up"]
        consumer = Consumer({"bootstrap.servers": stand[0]["bootstrap"][0], "group.id": "look"})
        assert sum(consumer.get_watermark_offsets(part, timeout=20)[1] for part in parts) == 20, "its data is there"
        consumer.close()
        assert lab("start", "north", "--dir", folder).returncode == 0
    finally:
        down = lab("down", "--dir", folder, "--json")
    assert json.loads(down.stdout) == {"ended": 2}
    assert not any(mark.alive() for mark in marks)
    assert not list(folder.glob("*/*"))
    assert lab("down", "--dir", folder).stdout == "no clusters are up\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--clusters", "North"], "lab.invalid-cluster-name"),
        (["--clusters", "a,a"], "lab.cluster-named-twice"),
        (["--brokers", "2"], "lab.broker-count"),
        (["--brokers", "2", "--dry-run"], "lab.broker-count"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(tmp_path: Path, arguments: list[str], code: str) -> None:
    said = lab("up", "--dir", tmp_path / "none", *arguments)
    assert said.returncode == 2
    assert f"[{code}]" in said.stderr
    assert "starting" not in said.stderr
    assert list_background_clusters(tmp_path / "none") == []


def test_a_dry_run_says_what_would_be_done_and_makes_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    assert bring_up(tmp_path / "none", ["a", "b"], tell=told.append, dry_run=True) == []
    assert [sentence.split(":")[0] for sentence in told] == ["starting a", "starting b"]
    assert not (tmp_path / "none").exists()


def test_what_an_interrupted_up_left_is_seen_and_ended(tmp_path: Path) -> None:
    left = tmp_path / "left" / "broker-1"
    left.mkdir(parents=True)
    (left.parent / ".twinshore-cluster").touch()
    with subprocess.Popen(["sleep", "300"]) as process:
        mark = [process.pid, psutil.Process(process.pid).create_time()]
        (left / "process.json").write_text(json.dumps(mark))
        assert [one.state for one in list_background_clusters(tmp_path)] == ["half started"]
        with raises(ConfigError, "lab.incomplete-start", state="half started"):
            bring_up(tmp_path, ["left"], tell=print)
        assert bring_down(tmp_path, tell=print) == 1
        assert process.wait(10) == -9
    assert list_background_clusters(tmp_path) == []


def test_a_process_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    left = tmp_path / "left" / "broker-1"
    left.mkdir(parents=True)
    (left.parent / ".twinshore-cluster").touch()
    with subprocess.Popen(["sleep", "300"]) as stranger:
        (left / "process.json").write_text(json.dumps([stranger.pid, 1.0]))
        assert bring_down(tmp_path, tell=print) == 1
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("names", [(), ("mine",)])
def test_folders_of_others_are_neither_listed_nor_taken_nor_removed(tmp_path: Path, names: tuple[str, ...]) -> None:
    kept = tmp_path / "other" / "broker-x" / "cluster.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    (tmp_path / "alike" / "broker-1").mkdir(parents=True)
    (tmp_path / "alike" / "cluster.json").write_text(json.dumps({"version": 1, "bootstrap": ["kafka-1:9092"]}))
    (tmp_path / "alike" / "broker-1" / "process.json").write_text(json.dumps([2**22 + 1, 1.0]))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".twinshore-cluster").touch()
    (tmp_path / "linked").symlink_to(tmp_path / "mine")
    assert [one.name for one in list_background_clusters(tmp_path)] == ["mine"]
    for name in ("other", "alike", "linked"):
        with raises(ConfigError, "lab.folder-taken", path=str(tmp_path / name)):
            bring_up(tmp_path, ["fresh", name], tell=print)
    assert not (tmp_path / "fresh").exists()
    assert bring_down(tmp_path, names, tell=print) == 1
    assert kept.read_text() == "{}"
    assert (tmp_path / "alike" / "broker-1" / "process.json").exists()
    assert not (tmp_path / "mine").exists()
    with raises(ConfigError, "lab.unknown-cluster", cluster="other"):
        bring_down(tmp_path, ["other"], tell=print)


def test_a_cluster_whose_brokers_were_killed_keeps_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "east" / "broker-1" / "data" / "kept"
    data.mkdir(parents=True)
    (tmp_path / "east" / ".twinshore-cluster").touch()
    (data.parents[1] / "process.json").write_text(json.dumps([2**22 + 1, 1.0]))
    (tmp_path / "east" / "cluster.json").write_text(json.dumps({"version": "1", "bootstrap": ["127.0.0.1:1"]}))
    assert [one.state for one in list_background_clusters(tmp_path)] == ["down"]
    monkeypatch.chdir(tmp_path.parent)
    for folder in (tmp_path, Path(tmp_path.name)):
        with raises(ConfigError, "lab.cluster-down", cluster="east"):
            bring_up(folder, ["east"], tell=print)
    assert data.exists()
    assert bring_down(Path(tmp_path.name), tell=print) == 1, "also where the folder is named from where one is"
    assert not data.exists()
