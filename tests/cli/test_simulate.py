"""`twinshore simulate` as it is typed: what it shows, and the code that it ends with."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from twinshore.cli.entry import app, gather
from twinshore.fleet import ConfigError
from twinshore.loss import STORIES

SMALL = ["simulate", "explore", "--replicas", "2", "--records", "1"]


@pytest.fixture(autouse=True)
def verbs() -> None:
    gather()


def test_stories_are_listed_and_told() -> None:
    listed = CliRunner().invoke(app, ["simulate", "story"])
    assert listed.exit_code == 0
    assert all(story.name in listed.output and story.title in listed.output for story in STORIES)
    told = CliRunner().invoke(app, ["simulate", "story", "unclean"])
    assert told.exit_code == 0
    assert "So it ends: Record 1 was acknowledged, and the leader's log does not have it." in told.output
    values = json.loads(CliRunner().invoke(app, ["simulate", "story", "unclean", "--json"]).output)
    assert values["settings"]["unclean"] is True
    assert len(json.loads(CliRunner().invoke(app, ["simulate", "story", "--json"]).output)) == len(STORIES)
    assert isinstance(CliRunner().invoke(app, ["simulate", "story", "x"]).exception, ConfigError)


def test_each_option_reaches_the_search() -> None:
    options = [
        *("--acks", "all", "--min-insync", "2", "--unclean", "--flush", "each", "--truncation", "high-watermark"),
        *("--no-elr", "--no-idempotence", "--no-retries", "--one-in-flight", "--commit", "after"),
        *("--fault", "crash", "--fault", "slow", "--harm", "lost", "--faults", "1", "--states", "7", "--json"),
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
        "faults": ["crash", "slow"],
    }
    assert (values["faults_max"], values["states"], list(values["schedules"])) == (1, 7, ["lost"])


def test_it_ends_with_1_where_a_schedule_does_harm_and_with_0_where_none_does() -> None:
    done = CliRunner().invoke(app, [*SMALL, "--harm", "lost"])
    assert done.exit_code == 1
    assert "LOST by 2 faults in 7 steps:" in done.output
    done = CliRunner().invoke(app, [*SMALL, "--harm", "lost", "--flush", "each"])
    assert done.exit_code == 0
    assert "LOST: by no schedule within 2 faults and 1 record; " in done.output
