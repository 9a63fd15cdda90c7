"""The smallest schedule of faults that harms an acknowledged record under given settings. No cluster is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from twinshore.fleet import ConfigError
from twinshore.fleet.settings.edge import did_you_mean
from twinshore.loss.search import STATES_MAX, Explored, explore
from twinshore.loss.settings import Acks, Commit, Fault, Flush, Harm, Setup, Truncation
from twinshore.loss.telling import outcome, step_values, values

REPLICAS_MAX = 5
RECORDS_MAX = 4
FAULTS_MAX = 4
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Asked:
    """As it is typed. `idempotent` is None where nobody said: on where acks=all and retries allow it, as in clients."""

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


def setup_of(asked: Asked) -> Setup:
    """ConfigError where a word or a number is none that is known, or where Kafka would refuse the settings together."""
    for name, value, least, most in (
        ("replicas", asked.replicas, 1, REPLICAS_MAX),
        ("records", asked.records, 1, RECORDS_MAX),
        ("faults", asked.faults_max, 0, FAULTS_MAX),
        ("min-insync", asked.min_insync, 1, REPLICAS_MAX),
    ):
        if not least <= value <= most:
            raise ConfigError(f"--{name} is {value}; it is {least} to {most}")
    acks = _one_of(Acks, "acks", asked.acks)
    able = acks is Acks.ALL and asked.retries
    setup = Setup(
        asked.replicas,
        asked.records,
        acks,
        asked.min_insync,
        asked.unclean,
        _one_of(Flush, "flush", asked.flush),
        _one_of(Truncation, "truncation", asked.truncation),
        asked.elr,
        able if asked.idempotent is None else asked.idempotent,
        asked.retries and acks is not Acks.NONE,
        asked.in_flight,
        _one_of(Commit, "commit", asked.commit),
    )
    if setup.idempotent and not able:
        raise ConfigError("an idempotent producer asks for acks=all and retries", hint="say --no-idempotence")
    if setup.elr and setup.truncation is Truncation.HIGH_WATERMARK:
        raise ConfigError("no Kafka has eligible leader replicas and cuts logs by the high watermark")
    kinds = frozenset(_one_of(Fault, "fault", kind) for kind in asked.kinds)
    return replace(setup, faults=kinds) if kinds else setup


def explored(asked: Asked) -> Explored:
    """The same for the same words, on any machine."""
    harms = tuple(_one_of(Harm, "harm", harm) for harm in asked.harms) or tuple(Harm)
    sought = tuple(dict.fromkeys(harms))
    return explore(setup_of(asked), faults_max=asked.faults_max, sought=sought, states_max=asked.states_max)


def exit_code(found: Explored) -> int:
    """1: a schedule does harm; 0: none within the bounds; 2: not all could be looked at."""
    return 1 if found.found else 0 if found.whole else 2


sentences_of = outcome


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


def _one_of(kind: type[E], name: str, word: str) -> E:
    try:
        return kind(word)
    except ValueError:
        raise ConfigError(f"--{name} is {word!r}{did_you_mean(word, [one.value for one in kind])}") from None
