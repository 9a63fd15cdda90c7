"""What comes of a look: findings under a policy, what is passed over, what could not be seen, what is new. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from twinshore.advisor.policy import Policy, Waiver
from twinshore.advisor.profiles import Kind, Profile, profiles_of
from twinshore.advisor.rule import WEIGHTS, Change, Finding, Found, Rule, finding_of
from twinshore.advisor.seen import Before, Group, GroupPlace, Partition, Seen, Topic, Unseen
from twinshore.fleet import ConfigError
from twinshore.fleet.sentences import counted, listed

FORM = 1
_FINDINGS, _UNSEEN, _WAIVERS = TypeAdapter(Finding), TypeAdapter(Unseen), TypeAdapter(Waiver)
STUCK, NAMED = "group-stuck", 3
# What no broker tells anybody, whoever asks.
ACKS = Unseen(
    "acks of producers",
    "brokers do not tell them; CP holds for producers with acks=all alone",
    "see to acks=all and enable.idempotence=true in each producer: some client libraries have acks=1 by default;"
    " the story acks-1 of `twinshore simulate story` shows what that loses",
)
RESETS = Unseen(
    "auto.offset.reset and enable.auto.commit of consumers",
    "brokers do not tell them",
    "see to them in each consumer: `twinshore advise settings` says which; the story newest of"
    " `twinshore simulate story` shows why",
)


@dataclass(frozen=True, slots=True)
class Waived:
    finding: Finding
    waiver: Waiver


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group was, for a later look."""

    group: str
    topic: str
    partition: int
    offset: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Advice:
    """`findings` are open; `remarks`: what is to be known of the policy. `unseen` could have been seen with more rights
    or time, `untold` by nobody."""

    cluster: str
    cluster_id: str
    at_ms: int
    findings: tuple[Finding, ...]
    waived: tuple[Waived, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    untold: tuple[Unseen, ...] = (ACKS, RESETS)
    profiles: tuple[Profile, ...] = ()
    remarks: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()

    def exit_code(self, policy: Policy) -> int:
        """1: something was found that the policy does not pass; 2: nothing was, but not all could be seen."""
        if any(policy.fails(one.weight) for one in self.findings):
            return 1
        return 2 if self.unseen else 0


@dataclass(frozen=True, slots=True)
class Difference:
    """Between an earlier advice and a later one, by rule and subject. `unsure`: no longer found, but not everything
    could be seen this time. `beside`: so many earlier ones are of rules or topics that were not looked at now."""

    since_ms: int
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    stays: int
    unsure: bool
    beside: int = 0


def advise(seen: Seen, policy: Policy, rules: Sequence[Rule]) -> Advice:
    """Every rule that the policy leaves on, over what was seen."""
    day = datetime.datetime.fromtimestamp(seen.at_ms / 1000, datetime.UTC).date()
    moving = {f"topic {one.name}": one for one in seen.topics if one.moves}
    found = [
        finding_of(rule, _while_moving(one, moving.get(one.subject)))
        for rule in rules
        if rule.name not in policy.off
        for one in rule.judge(seen, policy.limits_of(rule))
    ]
    found.sort(key=lambda one: WEIGHTS.index(one.weight))
    waived = {one.key: Waived(one, waiver) for one in found if (waiver := policy.waiver_of(one, day)) is not None}
    return Advice(
        seen.cluster,
        seen.cluster_id,
        seen.at_ms,
        tuple(one for one in found if one.key not in waived),
        tuple(waived.values()),
        (*seen.unseen, *_unjudged(seen, policy, rules)),
        profiles=profiles_of(seen),
        remarks=tuple(policy.remarks(found, day)),
        places=places_of(seen.groups),
    )


def _while_moving(found: Found, topic: Topic | None) -> Found:
    """Of a topic on the move it is told that it moves. What is safe is said of how it stands when it has moved."""
    if topic is None:
        return found
    told = listed([_move(one) for one in topic.partitions if one.moves], NAMED)
    return replace(found, evidence=f"{found.evidence}; on the move now: partition {told}", safe=None)


def _move(part: Partition) -> str:
    words = [
        f"{verb} {', '.join(map(str, nodes))}"
        for verb, nodes in (("gets", part.adding), ("gives up", part.removing))
        if nodes
    ]
    return f"{part.number} ({' and '.join(words)})"


def _unjudged(seen: Seen, policy: Policy, rules: Sequence[Rule]) -> Iterator[Unseen]:
    """Groups of which two looks that lie too close, or one look alone, do not say whether they move."""
    rule = next((one for one in rules if one.name == STUCK and one.name not in policy.off), None)
    if rule is None:
        return
    least_s = policy.limits_of(rule)["seconds"]
    near = [group.name for group in seen.groups if group.live and any(_too_near(one, least_s) for one in group.places)]
    if near:
        why = f"it was looked at once, or twice less than {least_s:g} s apart"
        what = f"whether {counted(len(near), 'group')} with members and records to read read on"
        yield Unseen(f"{what}: {listed(near, NAMED)}", why, "leave --apart as it is, or make it longer")


def _too_near(place: GroupPlace, least_s: float) -> bool:
    return bool(place.lag) and place.waits is not False and (place.before is None or place.before.apart_s < least_s)


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look is about: rules that are `off`, and which topics it `admits`."""

    off: frozenset[str] = frozenset()
    admits: Callable[[str], bool] = lambda _: True

    def at(self, finding: Finding) -> bool:
        """Whether the finding would be found again where it still is so. Of a group's finding that names no topic
        nobody knows with some topics alone; Kafka's own are looked at each time."""
        kind, _, name = finding.subject.partition(" ")
        topic = name.rpartition(" on ")[2] if kind == "group" else name
        named = kind in ("topic", "group") and not topic.startswith("__")
        return finding.rule not in self.off and (not named or self.admits(topic))


def difference(before: Advice, now: Advice, looked: Looked | None = None) -> Difference:
    """What is new and what is gone; findings that are waived now are neither, nor what was not looked at this time."""
    looked = looked or Looked()
    earlier = {one.key: one for one in (*before.findings, *(row.finding for row in before.waived))}
    later = {one.key for one in (*now.findings, *(row.finding for row in now.waived))}
    return Difference(
        before.at_ms,
        tuple(one for one in now.findings if one.key not in earlier),
        tuple(one for key, one in earlier.items() if key not in later and looked.at(one)),
        len(earlier.keys() & later),
        bool(now.unseen),
        sum(key not in later and not looked.at(one) for key, one in earlier.items()),
    )


def places_of(groups: Iterable[Group]) -> tuple[Place, ...]:
    """Where they are, for a later look."""
    return tuple(
        Place(group.name, one.topic, one.partition, one.offset, one.log_end) for group in groups for one in group.places
    )


def with_before(seen: Seen, places: Iterable[Place], at_ms: int) -> Seen:
    """The same look with an earlier one beside each place that both have."""
    apart_s = (seen.at_ms - at_ms) / 1000
    if apart_s <= 0:
        return seen
    known = {(one.group, one.topic, one.partition): one for one in places}

    def beside(group: str, place: GroupPlace) -> GroupPlace:
        earlier = known.get((group, place.topic, place.partition))
        if earlier is None:
            return place
        return replace(place, before=Before(earlier.offset, earlier.log_end, apart_s))

    groups = (replace(one, places=tuple(beside(one.name, place) for place in one.places)) for one in seen.groups)
    return replace(seen, groups=tuple(groups))


def as_values(advice: Advice, policy: Policy) -> dict[str, Any]:
    """For programs, and to be read again by `from_values`."""
    return {
        "form": FORM,
        "cluster": advice.cluster,
        "cluster_id": advice.cluster_id,
        "at_ms": advice.at_ms,
        "exit_code": advice.exit_code(policy),
        "findings": [_finding_values(one) for one in advice.findings],
        "waived": [
            {
                **_finding_values(one.finding),
                "waiver": {**asdict(one.waiver), "until": one.waiver.until.isoformat()},
            }
            for one in advice.waived
        ],
        "unseen": list(map(asdict, advice.unseen)),
        "untold": list(map(asdict, advice.untold)),
        "profiles": [_profile_values(one) for one in advice.profiles],
        "remarks": list(advice.remarks),
        "places": [list(astuple(one)) for one in advice.places],
    }


def difference_values(found: Difference) -> dict[str, Any]:
    """For programs."""
    return {
        "at_ms": found.since_ms,
        "new": [_finding_values(one) for one in found.new],
        "gone": [_finding_values(one) for one in found.gone],
        "stays": found.stays,
        "unsure": found.unsure,
        "not_looked_at": found.beside,
    }


def _finding_values(one: Finding) -> dict[str, Any]:
    safe = {"topic": one.safe.topic, "settings": dict(one.safe.settings)} if one.safe else None
    return {**asdict(one), "commands": list(one.commands), "safe": safe}


def _profile_values(one: Profile) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "kind": one.kind.value,
        "replicas": one.copies,
        "min_insync": one.min_isr,
        "unclean": one.unclean,
        "differs": list(one.differs),
    }


def from_values(values: Any, name: str) -> Advice:
    """An advice that `as_values` gave; a ConfigError where it is something else."""
    try:
        if values["form"] != FORM:
            raise ConfigError(f"{name} is of another version of Twinshore", hint="make it anew with --json")
        waived = [Waived(_finding_from(row), _WAIVERS.validate_python(row["waiver"])) for row in values["waived"]]
        return Advice(
            str(values["cluster"]),
            str(values["cluster_id"]),
            int(values["at_ms"]),
            tuple(_finding_from(row) for row in values["findings"]),
            tuple(waived),
            tuple(_UNSEEN.validate_python(row) for row in values["unseen"]),
            profiles=tuple(_profile_from(row) for row in values["profiles"]),
            places=tuple(Place(str(g), str(t), int(p), int(o), int(e)) for g, t, p, o, e in values["places"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{name} is no advice of `twinshore advise --json`: {error!r}") from error


def _finding_from(row: Mapping[str, Any]) -> Finding:
    safe = row["safe"]
    change = Change(safe["topic"], tuple(safe["settings"].items())) if safe else None
    return _FINDINGS.validate_python({**row, "safe": change})


def _profile_from(row: Mapping[str, Any]) -> Profile:
    differs = tuple(row["differs"])
    return Profile(row["topic"], Kind(row["kind"]), row["replicas"], row["min_insync"], row["unclean"], differs)
