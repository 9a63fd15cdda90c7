"""What the clients in Java make of what they hear, and of their clock; they ask no broker."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.jars import compile_java
from twinshore.lab.jars import fetch_kafka_classpath, find_java

CLIENTS = Path(__file__).resolve().parents[2] / "clients" / "java" / "src" / "main" / "java"
PLAYED = Path(__file__).parents[1] / "routing" / "client_orders.json"
LINES = Path(__file__).parents[1] / "fixtures" / "formats" / "home_lines.json"
CHECKS = Path(__file__).with_name("java") / "Checks.java"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    clients = compile_java(CLIENTS, fetch_kafka_classpath(), tmp_path_factory.mktemp("clients"))
    classpath = compile_java(CHECKS, clients, tmp_path_factory.mktemp("checks"))
    command = [
        find_java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        classpath,
        "io.twinshore.client.Checks",
        str(PLAYED),
        str(LINES),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.long
def test_homes_that_it_may_not_see_are_not_taken_for_absent(said: dict[str, str]) -> None:
    found = [said[one] for one in ("there", "absent", "hidden", "no leader")]
    assert found == ["true", "false", "throws", "throws"]


@pytest.mark.long
def test_an_order_tells_by_one_look_whether_the_topic_is_held(said: dict[str, str]) -> None:
    assert said["before"] == "writes true, held false"
    assert said["since"] == "writes false, held true"
    assert said["unknown"] == "held false", "it waits, and not for a switch"


@pytest.mark.long
def test_a_hold_ends_by_itself(said: dict[str, str]) -> None:
    assert said["in the hold"] == "held true"
    assert said["behind it"] == "writes true, held []"
    assert said["held again"] == "held true"


@pytest.mark.long
@pytest.mark.claim(
    "client", "first-words", "A client that starts waits for the clusters that have not said where topics are at home."
)
@pytest.mark.claim("client", "lease-by-home", "A client's lease to write is renewed by the cluster that it writes to.")
def test_where_a_client_writes_by_what_it_was_answered(said: dict[str, str]) -> None:
    cases = json.loads(PLAYED.read_text(encoding="utf-8"))["cases"]
    assert len(cases) > 10
    assert {one["name"]: said[one["name"]] for one in cases} == {one["name"]: one["writes"] or "-" for one in cases}


@pytest.mark.long
def test_each_line_is_read_as_the_others_read_it(said: dict[str, str]) -> None:
    cases = json.loads(LINES.read_text(encoding="utf-8"))
    assert {one["name"]: said[f"line, {one['name']}"] for one in cases} == {one["name"]: one["reads"] for one in cases}


@pytest.mark.long
def test_its_follower_line_has_a_version(said: dict[str, str]) -> None:
    assert json.loads(said["follower"])["v"] == 1


@pytest.mark.long
def test_its_clock_runs_on_while_the_machine_sleeps(said: dict[str, str]) -> None:
    assert said["awake"] == "0", "the two clocks' ticks add up to nothing"
    assert [said[one] for one in ("slept", "set back", "slept again")] == ["7000", "7000", "12000"]


@pytest.mark.long
def test_of_two_moves_with_nothing_read_between_them_its_place_is_carried(said: dict[str, str]) -> None:
    assert said["west"] == "reads on at 50"
    assert said["east"] == "reads on at 40", "behind the point other records lie there"


@pytest.mark.long
@pytest.mark.claim("client", "java-told", "whatever befalls a producer in Java, its records are sent on or told")
def test_a_producer_that_cannot_be_made_is_told_tried_again_and_closed_with_an_answer_for_each_record(
    said: dict[str, str],
) -> None:
    assert mentions(said["in trouble"], "east", "Invalid value soon")
    assert said["runs on"] == "true"
    assert said["closed"] == "[one true, two true]", "each hears, also behind a callback that throws"
    given_up = {said[one] for one in ("given up after", "tried again")}
    assert given_up == {str(2**31 - 1)}, "what was given up might still arrive"


@pytest.mark.long
@pytest.mark.claim("client", "java-told", "whatever befalls a producer in Java, its records are sent on or told")
def test_errors_in_the_thread_that_sends_end_nothing(said: dict[str, str]) -> None:
    assert said["left"] == "0"
    assert said["errors"] == "[one by twinshore till, two by twinshore till]"
