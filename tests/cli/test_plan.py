"""`twinshore mirror plan` on two real clusters: it says every step and does none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinshore.cli.entry import app, gather
from twinshore.fleet import RefusedError
from twinshore.lab import LabCluster
from twinshore.lab.clients import admin_of


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
    gather()
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
    assert len(said) == 3
    assert said[0].startswith(f"east->west: refuse: topic {topic}.few has 1 partitions on the target")
    assert said[1].startswith(f"east->west: create twin {topic}.plain: 3 partitions, 1 copies, cleanup.policy=delete")
    assert said[2] == (
        f"east->west: cost of {topic}.plain: exact: about 0 bytes in 0 offsets, 5 s at 50.0 MB/s (stated)"
    )
    assert _run("mirror", "run", "--dry-run", "--settings", str(file)).splitlines() == said

    refuse, create, cost = json.loads(_run("mirror", "plan", "--json", "--settings", str(file)))
    assert (refuse["step"], refuse["topic"]) == ("refuse", f"{topic}.few")
    assert (create["step"], create["partitions"]) == ("create", 3)
    assert (cost["step"], cost["topic"], cost["mode"], cost["markers"]) == ("cost", create["topic"], "exact", 0)
    assert create["settings"]["retention.ms"] == "-1"

    assert not (tmp_path / "store.db").exists()
    assert f"{topic}.plain" not in admin_of(west.cluster).list_topics(timeout=10).topics


def test_one_cluster_on_both_sides_is_refused_by_its_own_id(
    tmp_path: Path, east: LabCluster, unique_topic: str
) -> None:
    file = _settings(tmp_path, east, east, unique_topic[-40:])
    gather()
    with pytest.raises(RefusedError, match="east and west are the same cluster"):
        CliRunner().invoke(app, ["mirror", "plan", "--settings", str(file)], catch_exceptions=False)
