"""The search as an operator asks for it: words in, sentences or values out, and an exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain

import pytest

from testkit.errors import raises
from twinshore.advisor.core.simulator.explore import (
    ExplorationRequest,
    build_model_config,
    exit_code,
    exploration_as_values,
    run_exploration,
    sentences_of,
)
from twinshore.advisor.core.simulator.model import FAULT_BY_ACTION, FaultKind, ProducerAcks, build_initial_state
from twinshore.advisor.core.simulator.search import fault_transitions, faultless_transitions
from twinshore.config.errors import ConfigError

SMALL = ExplorationRequest(records=1, harms=("lost",))


def test_a_loss_is_told_in_numbered_sentences() -> None:
    found = run_exploration(SMALL)
    lines = list(sentences_of(found))
    assert lines[0].startswith("With 3 replicas, acks=all, min.insync.replicas=1, unclean election off, idempotence on")
    assert lines[2:] == [
        "LOST by 2 faults in 7 steps:",
        "  1. The producer sends record 1 to broker 1; it is appended at offset 0.",
        "  2. Fault: Broker 1 answers its followers too slowly.",
        "  3. The leader takes all followers out of the in-sync set; the high watermark is 1; in sync: 1;"
        " record 1 is acknowledged.",
        "  4. Fault: Broker 1 loses its power, and with it what was not on disk; it loses record 1.",
        "  5. The controller misses broker 1 and has nobody to lead.",
        "  6. Broker 1 starts again.",
        "  7. The controller makes broker 1 the leader.",
        "  So it ends: Record 1 was acknowledged, and the leader's log does not have it.",
        "",
        "Left out: reader, rest, retention.",
    ]
    assert exit_code(found) == 1


def test_the_same_as_values() -> None:
    values = json.loads(json.dumps(exploration_as_values(run_exploration(SMALL))))
    schedule = values["schedules"]["lost"]
    assert (schedule["faults"], schedule["record"], len(schedule["steps"])) == (2, 1, 7)
    assert [step["fault"] for step in schedule["steps"] if step["fault"]] == ["slow", "power"]
    assert schedule["steps"][0]["after"]["brokers"][0]["log"] == [[1, 0]]
    assert values["settings"]["min_insync"] == 1


def test_that_there_is_none_is_said_with_its_bounds() -> None:
    found = run_exploration(
        ExplorationRequest(records=1, faults_max=1, kinds=("crash", "slow"), harms=("lost", "lost"))
    )
    lines = list(sentences_of(found))
    none = f"LOST: by no schedule within 1 fault and 1 record; {found.states} states were looked at."
    assert lines[2:] == [none, "", "Left out: power, cut, answer, reader, rest, retention."]
    assert exit_code(found) == 0
    assert exploration_as_values(found)["schedules"] == {"lost": None}


@pytest.mark.parametrize(
    ("asked", "never"),
    [
        (ExplorationRequest(), {"reader", "rest", "retention"}),
        (ExplorationRequest(commit="after"), {"rest", "retention"}),
        (ExplorationRequest(commit="after", reset="latest"), set()),
        (ExplorationRequest(commit="together", reset="latest"), {"rest"}),
        (ExplorationRequest(replicas=1, commit="after", reset="latest"), {"cut", "slow"}),
    ],
)
def test_a_fault_that_cannot_happen_is_not_said_to_be_looked_at(asked: ExplorationRequest, never: set[str]) -> None:
    found = run_exploration(replace(asked, records=1, faults_max=1))
    assert set(exploration_as_values(found)["settings"]["faults"]) == set(FaultKind) - never
    last = list(sentences_of(found))[-1]
    left = ", ".join(fault for fault in FaultKind if fault in never)
    assert last == f"Left out: {left}." if never else not last.startswith("Left out")
    # Nor does it happen: each other one does in some schedule.
    state, seen, met = build_initial_state(found.config), set(), set()
    queue = [(state, 0)]
    while queue:
        state, spent = queue.pop()
        for move, then in chain(
            faultless_transitions(found.config, state), fault_transitions(found.config, state) if spent < 1 else ()
        ):
            met |= {FAULT_BY_ACTION[move.deed]} if move.is_fault else set()
            if (then, spent + move.is_fault) not in seen:
                seen.add((then, spent + move.is_fault))
                queue.append((then, spent + move.is_fault))
    assert met == set(FaultKind) - never


def test_that_it_gave_up_is_no_answer() -> None:
    found = run_exploration(ExplorationRequest(states_max=10))
    assert any(line.startswith("LOST: cannot tell. 10 states were looked at") for line in sentences_of(found))
    assert (exit_code(found), exploration_as_values(found)["whole"]) == (2, False)


def test_idempotence_is_on_where_clients_have_it_on() -> None:
    assert build_model_config(ExplorationRequest()).idempotent
    assert not build_model_config(ExplorationRequest(acks="1")).idempotent
    assert not build_model_config(ExplorationRequest(retries=False)).idempotent
    none = build_model_config(ExplorationRequest(acks="0", kinds=("crash",)))
    assert (none.acks, none.retries, none.faults) == (ProducerAcks.NONE, False, frozenset({FaultKind.CRASH}))


@pytest.mark.parametrize(
    ("asked", "code", "values"),
    [
        (ExplorationRequest(acks="al"), "config.unknown-choice", {"near": "; did you mean all?"}),
        (
            ExplorationRequest(kinds=("crush",)),
            "config.unknown-choice",
            {"near": "; did you mean crash?"},
        ),
        (
            ExplorationRequest(replicas=6),
            "advisor.out-of-range",
            {"option": "replicas", "value": 6, "least": 1, "most": 5},
        ),
        (ExplorationRequest(faults_max=9), "advisor.out-of-range", {"option": "faults", "value": 9}),
        (ExplorationRequest(acks="1", idempotent=True), "advisor.idempotence-needs-acks", {}),
        (ExplorationRequest(reset="earliest"), "advisor.reset-without-commit", {}),
        (ExplorationRequest(elr=True, truncation="high-watermark"), "advisor.elr-with-high-watermark", {}),
    ],
)
def test_what_nobody_knows_or_kafka_refuses_is_refused(
    asked: ExplorationRequest, code: str, values: dict[str, object]
) -> None:
    with raises(ConfigError, code, **values):
        run_exploration(asked)
