"""`twinshore mirror plan` on two real clusters: it says every step and does none."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.errors import raises
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import CodedError, RefusedError
from twinshore.config.incident_policy import IncidentKind, stop_policy
from twinshore.lab.clients import create_admin_client
from twinshore.lab.cluster import LabCluster
from twinshore.state.core.values import Incident
from twinshore.state.store import open_store

pytestmark = pytest.mark.claim(
    "groups",
    "plan-as-run",
    "mirror plan refuses what mirror run refuses, in the same words, and carries nothing that is paused or stopped",
)

LINK = "east->west"


def _settings(folder: Path, source: LabCluster, target: LabCluster, topic: str) -> Path:
    file = folder / "twinshore.toml"
    file.write_text(
        f"""
[store]
url = "sqlite:///{folder / "store.db"}"
[clusters.east]
bootstrap = ["{source.bootstrap[0]}"]
[clusters.west]
bootstrap = ["{target.bootstrap[0].replace("127.0.0.1", "localhost")}"]
[links."east->west"]
topics = ['{topic}.*']
"""
    )
    return file


def _run(*words: str) -> str:
    register_verbs()
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_plan_names_what_would_be_made_and_refused_and_does_nothing(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    topic = unique_topic[-40:]
    east.create_topic(f"{topic}.plain", partitions=3)
    east.create_topic(f"{topic}.few", partitions=2)
    west.create_topic(f"{topic}.few")
    file = _settings(tmp_path, east, west, topic)

    said = _run("mirror", "plan", "--settings", str(file)).splitlines()
    figures = "nothing is to be replicated now"
    assert len(said) == 2
    assert said[0].startswith(f"east->west: refuse: topic {topic}.few has 1 partitions on the target")
    assert said[1] == f"east->west: create twin {topic}.plain: 3 partitions, 1 copy; {figures}"
    assert _run("mirror", "run", "--dry-run", "--settings", str(file)).splitlines() == said

    said = _run("mirror", "plan", "--details", "--settings", str(file)).splitlines()
    assert len(said) == 3
    assert said[0].startswith(f"east->west: refuse: topic {topic}.few has 1 partitions on the target")
    assert said[1].startswith(f"east->west: create twin {topic}.plain: 3 partitions, 1 copy, cleanup.policy=delete")
    assert said[2] == f"east->west: cost of {topic}.plain: exact: {figures}"

    refuse, create, cost = json.loads(_run("mirror", "plan", "--json", "--settings", str(file)))
    assert (refuse["step"], refuse["topic"]) == ("refuse", f"{topic}.few")
    assert (create["step"], create["partitions"]) == ("create", 3)
    assert (cost["step"], cost["topic"], cost["mode"], cost["markers"]) == ("cost", create["topic"], "exact", 0)
    assert create["settings"]["retention.ms"] == "-1"

    assert not (tmp_path / "store.db").exists()
    assert f"{topic}.plain" not in create_admin_client(west.cluster).list_topics(timeout=10).topics


def test_what_is_paused_or_stopped_is_not_planned_as_carried(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    topic = unique_topic[-40:]
    for side in (east, west):
        side.create_topic(f"{topic}.half", partitions=2)
        side.create_topic(f"{topic}.stopped")
    east.create_topic(f"{topic}.held")
    east.create_topic(f"{topic}.out")
    file = _settings(tmp_path, east, west, topic)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as store:
        rows = []
        for name, partition, kind in (
            (f"{topic}.half", 1, IncidentKind.TRUNCATION),
            (f"{topic}.stopped", 0, IncidentKind.RIGHTS_LOST),
        ):
            incident = Incident(LINK, name, partition, kind, 5, 9, stop_policy(kind, partition), "the reason why")
            rows.append(store.incidents.add(incident, now_ms=1))
        _run("link", "pause", LINK, "--topic", f"{topic}.held", "--settings", str(file))
        _run("link", "filter", LINK, "--topics", f"{topic}.*", "--exclude", ".*out", "--settings", str(file))
        first, *said = _run("mirror", "plan", "--settings", str(file)).splitlines()
        assert first.startswith(f"east->west: replicate {topic}.half: 2 partitions, ")
        assert (
            f"without {topic}.half-1 (incident {rows[0].id}, {rows[0].incident.kind}; then `twinshore mirror resume`)"
            in first
        )
        assert [line.split(": ")[1] for line in said[:2]] == [f"do not replicate {topic}.stopped-0", "leave unchanged"]
        whole = _run("mirror", "plan", "--details", "--settings", str(file)).splitlines()
        said = [line for line in whole if "change settings" not in line]
        stops = [f"incident {row.id} stops it, {row.incident.kind}: the reason why" for row in rows]
        assert said[:4] == [
            f"east->west: replicate {topic}.half: 2 partitions",
            f"east->west: do not replicate {topic}.half-1: {stops[0]}; then `twinshore mirror resume`",
            f"east->west: do not replicate {topic}.stopped-0: {stops[1]}; it is retried by itself",
            f"east->west: leave unchanged: topic {topic}.held: it is paused, see `twinshore link list`",
        ]
        assert not any(".out" in line for line in said), "what operators excluded does not run either"
        steps = json.loads(_run("mirror", "plan", "--json", "--settings", str(file)))
        assert [one["partition"] for one in steps if one["step"] == "rest"] == [1, 0]
        _run("link", "pause", LINK, "--settings", str(file))
        said = _run("mirror", "plan", "--settings", str(file)).splitlines()
        assert {line.split(": ", 3)[-1] for line in said} == {"its link is paused, see `twinshore link list`"}


def test_a_plan_refuses_what_running_refuses_in_the_same_words(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    file = _settings(tmp_path, east, west, unique_topic[-40:])
    whole = file.read_text()

    def refusals() -> set[tuple[str, str]]:
        """Codes and sentences."""
        found = set()
        for words in (("mirror", "plan"), ("mirror", "run"), ("mirror", "run", "--dry-run")):
            register_verbs()
            with pytest.raises(CodedError) as caught:
                CliRunner().invoke(app, [*words, "--settings", str(file)], catch_exceptions=False)
            found.add((caught.value.code, caught.value.message))
        return found

    file.write_text(whole.split("[links")[0])
    ((code, _),) = refusals()
    assert code == "config.no-links"

    file.write_text(whole.replace(str(tmp_path / "store.db"), str(tmp_path / "nowhere" / "store.db")))
    ((code, _),) = refusals()
    assert code == "state.cannot-open"

    file.write_text(whole)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    refuses = "CREATE TRIGGER refuses BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'may not be written'); END"
    with closing(sqlite3.connect(tmp_path / "store.db")) as database:
        database.execute(refuses)
    ((_, message),) = refusals()
    assert "may not be written" in message


def test_one_cluster_on_both_sides_is_refused_by_its_own_id(
    tmp_path: Path, east: LabCluster, unique_topic: str
) -> None:
    file = _settings(tmp_path, east, east, unique_topic[-40:])
    register_verbs()
    with raises(RefusedError, "runtime.same-cluster", source="east", target="west"):
        CliRunner().invoke(app, ["mirror", "plan", "--settings", str(file)], catch_exceptions=False)


def test_a_plan_says_first_of_which_links_nobody_can_tell_and_plans_the_others(
    tmp_path: Path, east: LabCluster, west: LabCluster, unique_topic: str
) -> None:
    topic = unique_topic[-40:]
    east.create_topic(f"{topic}.one")
    file = _settings(tmp_path, east, west, topic)
    away = '[clusters.away]\nbootstrap = ["127.0.0.1:1"]\n[links."away->west"]\ntopics = ["else"]\n'
    file.write_text(file.read_text() + away)
    register_verbs()
    result = CliRunner().invoke(app, ["mirror", "plan", "--settings", str(file)], catch_exceptions=False)
    assert result.exit_code == 2
    first, second, *_ = result.output.splitlines()
    assert first.startswith("away->west: ") and "10 s" in first
    assert second.startswith(f"east->west: create twin {topic}.one: 1 partition")
