"""`twinshore simulate` as it is typed: what it shows, and the code that it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.core.simulator.search import STORIES
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.lab.cluster import LabCluster

SMALL = ["simulate", "explore", "--replicas", "2", "--records", "1"]


@pytest.fixture(autouse=True)
def verbs() -> None:
    register_verbs()


def test_stories_are_listed_and_told() -> None:
    listed = CliRunner().invoke(app, ["simulate", "story"])
    assert listed.exit_code == 0
    assert all(story.name in listed.output and story.title in listed.output for story in STORIES)
    told = CliRunner().invoke(app, ["simulate", "story", "unclean"])
    assert told.exit_code == 0
    assert "does not have it." in told.output
    values = json.loads(CliRunner().invoke(app, ["simulate", "story", "unclean", "--json"]).output)
    assert values["settings"]["unclean"] is True
    assert len(json.loads(CliRunner().invoke(app, ["simulate", "story", "--json"]).output)) == len(STORIES)
    assert isinstance(CliRunner().invoke(app, ["simulate", "story", "x"]).exception, ConfigError)


def test_each_is_written_as_a_page(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    for words, has in (
        (["story", "--html", str(file)], '<section class=play id="two-rounds">'),
        (["story", "unclean", "--html", str(file)], "<title>Unclean election: a replica that lags is made"),
        ([*SMALL[1:], "--fault", "crash", "--html", str(file)], "<title>The fewest faults that do harm"),
    ):
        done = CliRunner().invoke(app, ["simulate", *words])
        assert done.output and has in file.read_text()
    nowhere = ["simulate", "story", "--html", str(tmp_path / "none" / "page.html")]
    assert isinstance(CliRunner().invoke(app, nowhere).exception, ConfigError)


def test_each_option_reaches_the_search() -> None:
    options = [
        *("--acks", "all", "--min-insync", "2", "--unclean", "--flush", "each", "--truncation", "high-watermark"),
        *("--no-elr", "--no-idempotence", "--no-retries", "--one-in-flight", "--commit", "after"),
        *(
            "--fault",
            "crash",
            "--fault",
            "slow",
            "--harm",
            "lost",
            "--faults",
            "1",
            "--states",
            "7",
            "--away",
            "1",
            *("--reset", "earliest", "--json"),
        ),
    ]
    done = CliRunner().invoke(app, [*SMALL, *options])
    assert done.exit_code == 2, done.output
    values = json.loads(done.output)
    assert values["settings"] == {
        "replicas": 2,
        "records": 1,
        "acks": "all",
        "min_insync": 2,
        "unclean": True,
        "flush": "each",
        "truncation": "high-watermark",
        "elr": False,
        "idempotent": False,
        "retries": False,
        "in_flight": False,
        "commit": "after",
        "reset": "earliest",
        "faults": ["crash", "slow"],
        "away": 1,
        "capped": False,
    }
    assert (values["faults_max"], values["states"], list(values["schedules"])) == (1, 7, ["lost"])


def test_it_ends_with_1_where_a_schedule_does_harm_and_with_0_where_none_does() -> None:
    done = CliRunner().invoke(app, [*SMALL, "--harm", "lost"])
    assert done.exit_code == 1
    assert "LOST by 2 faults in 7 steps:" in done.output
    done = CliRunner().invoke(app, [*SMALL, "--harm", "lost", "--flush", "each"])
    assert done.exit_code == 0
    assert "LOST: by no schedule within 2 faults and 1 record; " in done.output


def test_a_live_topic_is_looked_at(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic)
    file = tmp_path / "twinshore.toml"
    file.write_text(settings_text(tmp_path, [east.cluster], {}))
    words = ["simulate", "topic", unique_topic, "--settings", str(file), "--cluster", "east", "--fault", "crash"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert f"{unique_topic} on east: 1 replica, min.insync.replicas=1" in done.output
    assert "Left out: power, cut, slow, answer, reader, rest, retention." in done.output
    more = ["--acks", "1", "--no-idempotence", "--no-retries", "--one-in-flight", "--commit", "auto", "--records", "1"]
    done = CliRunner().invoke(
        app, [*words, *more, "--faults", "1", "--states", "99", "--html", str(tmp_path / "page.html"), "--json"]
    )
    assert f"What loses a record of {unique_topic} on east" in (tmp_path / "page.html").read_text()
    (answer,) = json.loads(done.output)["answers"]
    assert (answer["faults_max"], answer["settings"]["commit"], answer["settings"]["retries"]) == (1, "auto", False)
