"""The smallest schedule of faults that harms an acknowledged record under given settings. No cluster is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from twinshore.advisor.core.simulator.model import Acks, Commit, Fault, Flush, Harm, Reset, Setup, Truncation
from twinshore.advisor.core.simulator.report import of_explored, outcome, page, step_values, values
from twinshore.advisor.core.simulator.search import STATES_MAX, Explored, explore
from twinshore.config.errors import ConfigError
from twinshore.config.schema import one_of

REPLICAS_MAX = 5
RECORDS_MAX = 4
FAULTS_MAX = 4


@dataclass(frozen=True, slots=True)
class Asked:
    """As it is typed. `idempotent` is None where nobody said: on where acks=all and retries allow it, as in clients.
    `capped` is false for brokers before Kafka 3.7; so are those that cut logs by the high watermark."""

    replicas: int = 3
    records: int = 2
    acks: str = "all"
    min_insync: int = 1
    unclean: bool = False
    flush: str = "never"
    truncation: str = "epoch"
    elr: bool = False
    idempotent: bool | None = None
    retries: bool = True
    in_flight: bool = True
    commit: str = "none"
    kinds: tuple[str, ...] = ()
    harms: tuple[str, ...] = ()
    faults_max: int = 2
    states_max: int = STATES_MAX
    away: int = 0
    reset: str = "none"
    capped: bool = True


def setup_of(asked: Asked) -> Setup:
    """ConfigError where a word or a number is none that is known, or where Kafka would refuse the settings together."""
    for name, value, least, most in (
        ("replicas", asked.replicas, 1, REPLICAS_MAX),
        ("records", asked.records, 1, RECORDS_MAX),
        ("faults", asked.faults_max, 0, FAULTS_MAX),
        ("min-insync", asked.min_insync, 1, REPLICAS_MAX + 1),
        ("away", asked.away, 0, asked.replicas - 1),
    ):
        if not least <= value <= most:
            raise ConfigError(f"--{name} is {value}; it is {least} to {most}")
    acks = one_of(Acks, "acks", asked.acks)
    able = acks is Acks.ALL and asked.retries
    truncation = one_of(Truncation, "truncation", asked.truncation)
    setup = Setup(
        asked.replicas,
        asked.records,
        acks,
        asked.min_insync,
        asked.unclean,
        one_of(Flush, "flush", asked.flush),
        truncation,
        asked.elr,
        able if asked.idempotent is None else asked.idempotent,
        asked.retries and acks is not Acks.NONE,
        asked.in_flight,
        one_of(Commit, "commit", asked.commit),
        away=asked.away,
        reset=one_of(Reset, "reset", asked.reset),
        capped=asked.capped and truncation is Truncation.EPOCH,
    )
    if setup.idempotent and not able:
        raise ConfigError("an idempotent producer asks for acks=all and retries", hint="say --no-idempotence")
    if setup.reset is not Reset.NONE and setup.commit is Commit.NONE:
        raise ConfigError("--reset is a consumer's", hint="say with --commit how it commits")
    if setup.elr and setup.truncation is Truncation.HIGH_WATERMARK:
        raise ConfigError("no Kafka has eligible leader replicas and cuts logs by the high watermark")
    kinds = frozenset(one_of(Fault, "fault", kind) for kind in asked.kinds)
    return replace(setup, faults=kinds) if kinds else setup


def explored(asked: Asked) -> Explored:
    """The same for the same words, on any machine."""
    harms = tuple(one_of(Harm, "harm", harm) for harm in asked.harms) or tuple(Harm)
    sought = tuple(dict.fromkeys(harms))
    return explore(setup_of(asked), faults_max=asked.faults_max, sought=sought, states_max=asked.states_max)


def exit_code(found: Explored) -> int:
    """1: a schedule does harm; 0: none within the bounds; 2: not all could be looked at."""
    return 1 if found.found else 0 if found.whole else 2


sentences_of = outcome


def page_of(found: Explored) -> str:
    """For whoever opens it in a browser: each schedule drawn, under what was found."""
    return page("The fewest faults that do harm", [*of_explored(found)], outcome(found, steps=False))


def values_of(found: Explored) -> dict[str, Any]:
    """For programs. A harm that no schedule does within the bounds is null; `whole` says whether all were looked at."""
    schedules: dict[str, Any] = dict.fromkeys(found.sought)
    for harm, schedule in found.found.items():
        schedules[harm] = {
            "faults": schedule.faults,
            "record": schedule.damage.record,
            "says": schedule.damage.says,
            "steps": step_values(found.setup, schedule.steps),
        }
    return {
        "settings": values(found.setup),
        "faults_max": found.faults_max,
        "states": found.states,
        "whole": found.whole,
        "schedules": schedules,
    }
