"""Setting a group of the proxies' clients to other places while its members run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

from twinshore.config.errors import ConfigError, RefusedError, TwinshoreError
from twinshore.config.model import Plan
from twinshore.config.sections.proxy import SECTION
from twinshore.config.sentences import counted, listed, moment
from twinshore.config.settings import Settings
from twinshore.kafka.cluster import KafkaCluster
from twinshore.proxy.core.offset_reset import (
    GoalKind,
    Target,
    backwards,
    goals_of,
    sentence_of,
    taken_up,
    target_of,
    topics_of,
)
from twinshore.proxy.offset_reset import Resetting, Standing, is_under_way, is_unfinished, standing
from twinshore.proxy.operations.breakers import serving
from twinshore.state.core.proxy_values import ResetGoal, ResetRow
from twinshore.state.schema import GROUP_LENGTH
from twinshore.state.store import Store

ASK_S: Final = 5.0
GATHER_S: Final = 10.0
NAMED_MAX: Final = 5
SHOWN_MAX: Final = 1000
UNFINISHED: Final = "finish it with --resume, or have places as they were with --undo"


class Taking(StrEnum):
    """What becomes of a reset that was not finished."""

    UP = "resume"
    BACK = "undo"


@dataclass(frozen=True, slots=True)
class Asked:
    """`topics`: with the partitions that are meant, None for all; empty: wherever the group has a place. `target`: None
    where only to look, or where a reset that was not finished is taken up or `taking` back. `gather_s`: how long
    members are waited for, so that they come back together."""

    group: str
    topics: Mapping[str, frozenset[int] | None]
    target: Target | None = None
    taking: Taking | None = None
    gather_s: float = GATHER_S


def asked_for(
    group: str,
    topics: Sequence[str],
    *,
    earliest: bool = False,
    latest: bool = False,
    offset: int | None = None,
    time: str = "",
    shift: int | None = None,
    resume: bool = False,
    undo: bool = False,
    gather_s: float = GATHER_S,
) -> Asked:
    """As options say it. ConfigError where they say more than one thing."""
    if resume and undo:
        raise ConfigError("--resume and --undo are two things")
    target = target_of(earliest=earliest, latest=latest, offset=offset, time=time, shift=shift, undone=resume or undo)
    if (resume or undo) and topics:
        raise ConfigError("--topic: a reset that was not finished knows its places by itself")
    if not group or len(group) > GROUP_LENGTH:
        raise ConfigError(f"GROUP: a name of 1 to {GROUP_LENGTH} characters")
    taking = Taking.UP if resume else Taking.BACK if undo else None
    return Asked(group, topics_of(topics), target, taking, gather_s)


class Stage(StrEnum):
    """In this order."""

    HOLD = "hold"
    GATHER = "gather"
    SET = "set"
    GO = "go"


_WORDS: Final = {
    Stage.HOLD: ("have group {group} held by {count}", "group {group} is held by {count}"),
    Stage.GATHER: ("have members commit and wait", "{count} of {members} have committed, and wait"),
    Stage.SET: ("have {members} leave it, and set {places}", "it was left by {members}, and {places} set{came}"),
    Stage.GO: ("let members join anew", "members join anew; {count} of {members} had come by then"),
}


@dataclass(frozen=True, slots=True)
class OffsetsStep:
    """`counts`: the numbers of its sentence."""

    stage: Stage
    group: str
    counts: Mapping[str, str]

    def sentence(self, *, done: bool) -> str:
        return _WORDS[self.stage][done].format(group=self.group, **self.counts)


@dataclass(frozen=True, slots=True)
class Meant(Plan[OffsetsStep]):
    """`known`: the run of the reset that stood as this was planned. `term`: how often groups had moved by then."""

    home: str = ""
    term: int = 0
    goals: tuple[ResetGoal, ...] = ()
    known: str = ""


def plan(asked: Asked, settings: Settings, store: Store) -> Meant:
    """How the group stands, and where it would. ConfigError where there is no such group, topic or partition."""
    before = next((row for row in store.proxy_resets.all()[1] if row.group == asked.group), None)
    if before is not None and is_under_way(before) and _changes(asked):
        raise RefusedError(_under_way(before), hint=f"it ends by {moment(before.until_ms)} at the latest")
    if asked.taking is not None and not is_unfinished(before):
        raise ConfigError(f"no reset of group {asked.group} is unfinished")
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        since_ms = asked.target.number if asked.target is not None and asked.target.way is GoalKind.TIME else None
        topics = asked.topics if asked.taking is None or before is None else _topics(before.goals)
        there = standing(asked.group, topics, clusters, settings, store, since_ms)
    return _meant(asked, there, before, len(serving(store)))


def _changes(asked: Asked) -> bool:
    return asked.target is not None or asked.taking is not None


def _under_way(row: ResetRow) -> str:
    return f"{row.set_by} sets group {row.group} to other places since {moment(row.since_ms)}"


def _topics(goals: Sequence[ResetGoal]) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for one in goals:
        found[one.topic] = found.get(one.topic, frozenset()) | {one.partition}
    return found


def _meant(asked: Asked, there: Standing, before: ResetRow | None, proxies: int) -> Meant:
    away = there.silent.items()
    remarks = [f"{name} does not answer ({error.message}): places there are not seen" for name, error in away]
    count = len(there.members.members)
    shown = [f"group {asked.group} is at home on {there.home}, and has {counted(count, 'member')}"]
    if before is not None and is_under_way(before):
        shown.append(_under_way(before))
    unfinished = ""
    if before is not None and is_unfinished(before):
        unfinished = f"{before.set_by} began to set it to other places at {moment(before.since_ms)}, and did not finish"
        shown.append(unfinished)
    goals, why = _goals(asked, there, before)
    if asked.taking is not None:
        remarks, why = [*remarks, *why], []
    to = {(one.topic, one.partition): one.to for one in goals}
    shown += [sentence_of(spot, to.get((spot.topic, spot.partition))) for spot in there.spots[:SHOWN_MAX]]
    if len(there.spots) > SHOWN_MAX:
        shown.append(f"and {len(there.spots) - SHOWN_MAX} more partitions")
    refused = _refused(asked, unfinished, why, count, proxies)
    if refused is not None or not goals:
        return Meant((), tuple(shown), tuple(remarks), refused)
    remarks += _what_stays(asked, before)
    counts = {
        "count": _proxies(proxies),
        "members": counted(count, "member"),
        "places": counted(len(goals), "place"),
        "came": "",
    }
    steps = tuple(OffsetsStep(stage, asked.group, counts) for stage in Stage)
    known = before.run if before is not None else ""
    return Meant(steps, tuple(shown), tuple(remarks), None, there.home, there.term, goals, known)


def _goals(asked: Asked, there: Standing, before: ResetRow | None) -> tuple[tuple[ResetGoal, ...], list[str]]:
    if asked.taking is not None:
        assert before is not None
        return taken_up(before.goals if asked.taking is Taking.UP else backwards(before.goals), there.spots)
    return goals_of(asked.target, there.spots) if asked.target is not None else ((), [])


def _what_stays(asked: Asked, before: ResetRow | None) -> list[str]:
    if asked.taking is not Taking.BACK or before is None:
        return []
    new = [f"{one.topic}-{one.partition}" for one in before.goals if one.was is None]
    return [f"where there was no place before, one stays: {listed(new, NAMED_MAX)}"] if new else []


def _refused(asked: Asked, unfinished: str, why: Sequence[str], members: int, proxies: int) -> TwinshoreError | None:
    if not _changes(asked):
        return None
    if unfinished and asked.taking is None:
        return RefusedError(unfinished, hint=UNFINISHED)
    if why:
        return RefusedError(f"{listed(why, NAMED_MAX, '; ')}", hint="nothing has changed")
    if members and not proxies:
        return RefusedError(
            f"group {asked.group} has {counted(members, 'member')}, and no proxy is known to serve",
            hint="proxies and this command must have the same store; or stop the members",
        )
    return None


def act(asked: Asked, meant: Meant, settings: Settings, store: Store, by: str) -> Iterator[OffsetsStep]:
    """Each step once it is done. What goes wrong before the second lets members go on where they were."""
    if not meant.steps:
        return
    with ExitStack() as stack:
        clusters = _clusters(settings, stack)
        look = partial(standing, asked.group, _topics(meant.goals), clusters, settings, store)
        hands = Resetting(asked.group, meant.home, meant.goals, clusters, store, by, look, meant.term, meant.known)
        hands.gather_s = asked.gather_s
        hands.target = asked.target
        hands.takes_up, hands.undoes = asked.taking is not None, asked.taking is Taking.BACK
        try:
            hands.begin()
            held = hands.wait_for_proxies()
            hands.look_again(are_set=hands.shifts)
            yield _step(meant, Stage.HOLD, count=_proxies(held))
            came, of = hands.gather()
            yield _step(meant, Stage.GATHER, count=str(came), members=counted(of, "member"))
            hands.is_about_to_set()
            hands.set_places()
            sent = counted(len(hands.sent), "member")
            yield _step(meant, Stage.SET, members=sent, came=_came(asked, hands.goals))
            came = hands.gather_late()
            hands.prove()
            hands.end()
        except TwinshoreError as error:
            hands.give_up()
            if hands.is_half_done:
                error.hint = UNFINISHED
            raise
        except KeyboardInterrupt as error:
            hands.give_up()
            left = f"some places may be set; {UNFINISHED}" if hands.is_half_done else "no place has changed"
            raise KeyboardInterrupt(f"group {asked.group}: {left}") from error
        except BaseException:
            hands.give_up()
            raise
        yield _step(meant, Stage.GO, count=str(came), members=sent)


def _came(asked: Asked, goals: Sequence[ResetGoal]) -> str:
    """Members may have committed since it was shown."""
    if asked.target is None or asked.target.way is not GoalKind.SHIFT:
        return ""
    return ": " + listed([f"{one.topic}-{one.partition}: {one.was} -> {one.to}" for one in goals], NAMED_MAX)


def _proxies(count: int) -> str:
    return f"{count} prox{'y' if count == 1 else 'ies'}"


def _step(meant: Meant, stage: Stage, **counts: str) -> OffsetsStep:
    step = next(one for one in meant.steps if one.stage is stage)
    return OffsetsStep(stage, step.group, {**step.counts, **counts})


def _clusters(settings: Settings, stack: ExitStack) -> dict[str, KafkaCluster]:
    names = settings.of(SECTION).clusters
    made = {name: KafkaCluster(settings.cluster(name), patience_s=ASK_S, call_s=ASK_S) for name in names}
    return {name: stack.enter_context(closing(one)) for name, one in made.items()}
