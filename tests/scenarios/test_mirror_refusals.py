"""What keeps a link from running is said in a sentence with place and remedy, before anything is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import twinshore
from testkit.access import LabSecurity
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until, url_in
from tests.scenarios.test_mirror_basic import fill
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import Cluster
from twinshore.config.settings import load_settings
from twinshore.lab.clients import create_admin_client
from twinshore.lab.jars import ONE_COMPILER_FLAG
from twinshore.lab.ports import free_port
from twinshore.monitoring.sampler import Sampler
from twinshore.runtime.endpoints import LinkClients
from twinshore.state.store import open_store

LINK = "east->west"
ELSEWHERE = "its addresses lead to another cluster now"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, "")
    yield made
    made.process.end()


def started(rig: Rig, text: str) -> Rig:
    rig.process.settings.write_text(text, encoding="utf-8")
    rig.process.start()
    return rig


def names(cluster: Cluster) -> set[str]:
    return set(create_admin_client(cluster).list_topics(timeout=10).topics)


def ended_with(rig: Rig, *words: str) -> None:
    """It has ended, said all these words, and shown nobody a stack of calls."""
    assert rig.until_ended(90) != 0
    said = rig.process.said
    assert all(word in said for word in words), said
    assert "Traceback" not in said, said


def test_one_cluster_on_both_sides(rig: Rig, east: RigCluster) -> None:
    before = names(east.cluster)
    other = Cluster("west", tuple(address.replace("127.0.0.1", "localhost") for address in east.bootstrap))
    started(rig, settings_text(rig.folder, [east.cluster, other], {LINK: ".*"}))
    ended_with(rig, "east and west are the same cluster", "check the bootstrap addresses")
    assert names(east.cluster) == before


def test_an_unknown_setting_names_the_nearest(rig: Rig, east: RigCluster, west: RigCluster) -> None:
    text = settings_text(rig.folder, [east.cluster, west.cluster], {LINK: ".*"}, mirror={"task_run_sec": 3})
    started(rig, text)
    ended_with(rig, "[mirror]", "task_run_sec", "did you mean task_run_s")
    assert not (rig.folder / "store.db").exists()


def test_a_cluster_that_cannot_be_reached_is_waited_for_by_name(rig: Rig, east: RigCluster) -> None:
    before = names(east.cluster)
    nobody = Cluster("west", (f"127.0.0.1:{free_port()}",))
    started(rig, settings_text(rig.folder, [east.cluster, nobody], {LINK: ".*"}))
    line = rig.until_said("waiting", within_s=90)
    assert "west" in line
    assert nobody.bootstrap[0] in line
    assert names(east.cluster) == before
    assert rig.process.end() == 0, "and it stops when it is told to"
    assert "Traceback" not in rig.process.said


@pytest.mark.claim(
    "groups",
    "proof-wrong-clusters",
    "with both addresses swapped nothing is carried, compared, counted or advised, and no false difference written",
)
def test_clusters_that_changed_places_are_not_mixed(rig: Rig, east: RigCluster, west: RigCluster) -> None:
    east.create_topic("swapped")
    fill(east, "swapped")
    started(rig, settings_text(rig.folder, [east.cluster, west.cluster], {LINK: "swapped"}))
    until(lambda: rig.told(LINK).get(("swapped", 0), 0) > 0, 90, "it is carried", rig)
    until(lambda: same_ends(east.cluster, west.cluster, "swapped", 1), 90, "all of it is", rig)
    assert rig.process.end() == 0
    fill(east, "swapped")
    swapped = [replace(east.cluster, bootstrap=west.bootstrap), replace(west.cluster, bootstrap=east.bootstrap)]
    text = settings_text(rig.folder, swapped, {LINK: "swapped"})
    began = len(rig.process.said)
    started(rig, text)
    ended_with(rig, "was between clusters", "the addresses now lead to")
    assert "starting Spark" not in rig.process.said[began:], "it is refused before that"

    # Nor does anything else compare, advise or count by the wrong side.
    register_verbs()
    words = ["prove", "--here", "--settings", str(rig.process.settings)]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.exit_code == 2 and ELSEWHERE in told.output, told.output
    assert rig.ledger(LINK) == (), "no difference is written that is none"
    (link,) = json.loads(rig.verb("status", "--json"))["links"]
    assert link["lag_records"] is None and ELSEWHERE in rig.verb("status"), link
    drawn = json.loads(rig.verb("topology", "--json"))
    assert {one["cluster"] for one in drawn["unreachable"]} == {"east", "west"}, drawn
    loaded = load_settings(rig.process.settings, os.environ)
    with open_store(url_in(rig.folder)) as store, LinkClients(loaded.links[0], loaded, patience_s=5.0) as ends:
        sampler = Sampler(loaded.links[0], ends.source, ends.target, store, groups=False)
        sample = sampler.sample(lambda: int(time.time() * 1000), 0)
    assert sample.readings == () and ELSEWHERE in sample.failures[""], sample


@pytest.mark.long
def test_a_link_between_wrong_clusters_holds_up_no_other(rig: Rig, east: RigCluster, west: RigCluster) -> None:
    # A topic of its own flows: a twin of the heartbeats may stand there, made for a link that an earlier test ended.
    east.create_topic("told-apart")
    fill(east, "told-apart")
    again = Cluster("again", tuple(address.replace("127.0.0.1", "localhost") for address in east.bootstrap))
    links = {LINK: "told-apart", "east->again": "told-apart"}
    started(rig, settings_text(rig.folder, [east.cluster, west.cluster, again], links))
    rig.until_said("east and again are the same cluster", within_s=90)
    rig.until_said("east->west: flowing", within_s=90)
    words = [sys.executable, "-m", "twinshore.cli", "status", "--json", "--settings", str(rig.process.settings)]
    environment = {**os.environ, "PYTHONPATH": str(Path(twinshore.__file__).parent.parent)}
    told = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment, check=True).stdout
    states = {one["link"]: one["state"] for one in json.loads(told)["links"]}
    assert states == {LINK: "flowing", "east->again": "waiting"}, (told, rig.process.said)
    assert rig.process.end() == 0, "and it stops when it is told to"
    assert "Traceback" not in rig.process.said


@pytest.mark.long
def test_a_full_disk_under_the_store(rig: Rig, east: RigCluster, west: RigCluster) -> None:
    """A bound on the size of files stands for the disk: both refuse to let the store grow."""
    before = names(west.cluster)
    text = settings_text(rig.folder, [east.cluster, west.cluster], {LINK: ".*"})
    rig.process.settings.write_text(text, encoding="utf-8")
    bounded = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
    bounded += "sys.argv = ['twinshore', *sys.argv[1:]]; runpy.run_module('twinshore.cli', run_name='__main__')"
    command = [sys.executable, "-c", bounded, "mirror", "run", "--settings", str(rig.process.settings)]
    environment = {**os.environ, "PYTHONPATH": str(Path(twinshore.__file__).parent.parent)}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=rig.folder, env=environment, check=False
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert str(rig.folder / "store.db") in said
    assert "disk" in said
    assert "Traceback" not in said
    assert names(west.cluster) == before


@pytest.fixture(scope="module")
def guarded() -> Iterator[RigCluster]:
    """A target that asks who one is and what one may do."""
    kind = LabSecurity.SASL_SCRAM_256
    with RigCluster(
        "west", security=kind, authorizer=True, users=("poor", "half"), heap_mb=256, jvm_flags=(ONE_COMPILER_FLAG,)
    ) as cluster:
        # librdkafka's word for the cluster as a resource is "broker".
        add_acl(cluster.cluster, "half", "describe", "broker", "kafka-cluster")
        add_acl(cluster.cluster, "half", "idempotent_write", "broker", "kafka-cluster")
        yield cluster


@pytest.mark.parametrize(("user", "right"), [("poor", "IdempotentWrite"), ("half", "Create")])
def test_missing_rights_are_named(rig: Rig, east: RigCluster, guarded: RigCluster, user: str, right: str) -> None:
    if "rights-topic" not in names(east.cluster):
        east.create_topic("rights-topic")
    started(rig, settings_text(rig.folder, [east.cluster, guarded.cluster_as(user)], {LINK: "rights-topic"}))
    until(lambda: f"grant {right}" in rig.process.said, 90, f"that {right} is to be granted", rig)
    assert "Traceback" not in rig.process.said
    assert "rights-topic" not in names(guarded.cluster)
