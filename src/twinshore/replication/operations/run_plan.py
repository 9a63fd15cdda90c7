"""Looks up offsets of mapped topics, and plans what running links would do, without doing any of that."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.frozen import PLAN_CLIENT_ID
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.config.sentences import count_copies, count_phrase, join_names
from twinshore.config.settings import Settings
from twinshore.replication.core.mapping import Cost, translate_to_source, translate_to_target
from twinshore.replication.core.model import AtHome, CarryTopic, Create, Grow, PlanStep, Refuse, Rest, Settle, Stay
from twinshore.replication.links import effective_links
from twinshore.replication.preview import check_chosen_links, preview_link
from twinshore.replication.sync.core import decisions
from twinshore.replication.sync.core.decisions import Change, Remark
from twinshore.replication.sync.syncer import PreviewLine
from twinshore.replication.sync.syncer import preview_sync as follows
from twinshore.runtime.endpoints import one_shot_connections
from twinshore.state.store import Store

log = logging.getLogger(__name__)

OFFSET_RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """An offset of one side; with neither, the last `most` offset runs."""

    topic: str
    partition: int = 0
    source_offset: int | None = None
    target_offset: int | None = None
    most: int = OFFSET_RUNS_SHOWN
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """`source` and `target` belong together; None: unknown. `exact`: the record itself; else the next one that both
    sides have. `back`: the target's offset was given.
    """

    link: str
    topic: str
    partition: int
    source: int | None
    target: int | None
    exact: bool
    back: bool

    def as_values(self) -> dict[str, Any]:
        """Returns values for JSON, the queried offset first."""
        place = {"link": self.link, "topic": self.topic, "partition": self.partition}
        ends = {"source": self.source, "target": self.target}
        return {**place, **(dict(reversed(ends.items())) if self.back else ends), "exact": self.exact}

    def sentence(self) -> str:
        note = "" if self.exact else ", the next record that both sides have"
        return f"{self.link}: {self.topic}-{self.partition}: source {self.source} is target {self.target}{note}"


@dataclass(frozen=True, slots=True)
class PartitionOffsetRun:
    """Source and target offsets differ by one number."""

    link: str
    topic: str
    partition: int
    offset_run: OffsetRun

    def as_values(self) -> dict[str, Any]:
        return {"link": self.link, "topic": self.topic, "partition": self.partition, **self.offset_run._asdict()}

    def sentence(self) -> str:
        where, (source, target, length, _) = f"{self.link}: {self.topic}-{self.partition}", self.offset_run
        if not length:
            return f"{where}: nothing yet; continues with {source} of the source behind {target} of the target"
        span = f"source {source} to {source + length - 1} is target {target} to {target + length - 1}"
        return f"{where}: {span} ({target - source:+d})"


def look_up_offsets(query: OffsetQuery, settings: Settings, store: Store) -> list[OffsetLookup | PartitionOffsetRun]:
    """Returns offsets or runs; ConfigError when no link has a mapped twin of the topic."""
    if query.source_offset is not None and query.target_offset is not None:
        raise ConfigError("replication.one-of-two", one="--source-offset", other="--target-offset")
    found: list[OffsetLookup | PartitionOffsetRun] = []
    for link in settings.chosen(query.links):
        if store.offset_runs.of(link.name, query.topic, query.partition, limit=1):
            found += _of_link(query, link.name, store)
    if not found:
        raise ConfigError("replication.no-offset-map", partition=f"{query.topic}-{query.partition}")
    return found


def _of_link(query: OffsetQuery, link: str, store: Store) -> list[OffsetLookup | PartitionOffsetRun]:
    key = (link, query.topic, query.partition)
    if query.source_offset is not None:
        at = query.source_offset
        there = translate_to_target(SourceOffset(at), *store.offset_runs.around(*key, at))
        return [OffsetLookup(*key, at, there.offset if there else None, bool(there and there.exact), back=False)]
    if query.target_offset is not None:
        at = query.target_offset
        there = translate_to_source(TargetOffset(at), *store.offset_runs.around(*key, at, on_target=True))
        return [OffsetLookup(*key, there.offset if there else None, at, bool(there and there.exact), back=True)]
    return [PartitionOffsetRun(*key, one) for one in store.offset_runs.of(*key, limit=query.most)]


# Kinds that may have a line for each topic, rule or user: these are counted. All others are shown one by one.
_COUNTED = {
    decisions.SETTING_KIND: "topic setting",
    decisions.ACL_KIND: "ACL",
    decisions.QUOTA_KIND: "quota",
    decisions.USER_KIND: "SCRAM user",
}
NAMED_MAX = 3


def summarize_plan(link: str, steps: Iterable[PlanStep | Cost], besides: Iterable[Change | Remark]) -> list[str]:
    topics: dict[str, list[PlanStep | Cost]] = {}
    for step in steps:
        topics.setdefault(step.topic, []).append(step)
    return [line for ours in topics.values() for line in _topic(ours)] + _besides(link, list(besides))


def _topic(steps: Sequence[PlanStep | Cost]) -> list[str]:
    """One line, unless the topic is refused for several reasons."""
    refused = [describe_step(step) for step in steps if isinstance(step, Refuse | Stay)]
    if refused:
        return refused
    rests = [step for step in steps if isinstance(step, Rest)]
    makes = [step for step in steps if isinstance(step, Create | CarryTopic)]
    if not makes and rests:
        more = f" (and {count_phrase(len(rests) - 1, 'more partition')})" if len(rests) > 1 else ""
        return [describe_step(rests[0]) + more]
    if not makes:
        return [describe_step(step) for step in steps]
    said = [_shape(step) for step in makes]
    for step in steps:
        match step:
            case Grow(_, partitions):
                said.append(f"its twin grows to {partitions} partitions")
            case Settle(_, settings):
                said.append(f"{count_phrase(len(settings), 'setting')} of its twin to change")
            case AtHome(_, home):
                said.append(f"at home on {home}")
    if rests:
        stopped = [f"{one.topic}-{one.partition} (incident {one.incident}, {one.kind}; {_then(one)})" for one in rests]
        said.append(f"without {join_names(stopped, NAMED_MAX)}")
    costs = [f"; {step.figures}" for step in steps if isinstance(step, Cost)]
    return [", ".join(said) + "".join(costs)]


def describe_step(step: PlanStep | Cost) -> str:
    match step:
        case Create():
            return f"{_shape(step)}, {_pairs(step.settings)}; replicate it"
        case CarryTopic():
            return f"{_shape(step)}{': behind what it holds, at offsets of its own' if step.mapped else ''}"
        case Grow(topic, partitions, _, twin):
            return f"grow twin {twin or topic} to {partitions} partitions"
        case Settle(topic, settings, _, twin):
            return f"change settings of twin {twin or topic}: {_pairs(settings)}"
        case Refuse(_, _, sentence, hint):
            return f"refuse: {sentence} (try: {hint})"
        case Rest(topic, partition, incident, kind, sentence):
            return (
                f"do not replicate {topic}-{partition}: incident {incident} stops it, {kind}: {sentence}; {_then(step)}"
            )
        case AtHome(topic, home):
            return f"home of {topic}: {home}"
        case Stay(_, sentence):
            return f"leave unchanged: {sentence}"
        case Cost():
            return str(step)


def _shape(step: Create | CarryTopic) -> str:
    twin = f"{step.twin} of {step.topic}" if step.twin else step.topic
    partitions = count_phrase(step.partitions, "partition")
    if isinstance(step, Create):
        return f"create twin {twin}: {partitions}, {count_copies(step.replication)}"
    return f"replicate {twin}: {partitions}{', mapped' if step.mapped else ''}"


def _pairs(settings: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings)


def _then(step: Rest) -> str:
    return "it is retried by itself" if step.retries else "then `twinshore mirror resume`"


def _besides(link: str, lines: Sequence[Change | Remark]) -> list[str]:
    """A line each for a whole topic or the link, counts for the rest."""
    each = [str(line) for line in lines if line.kind not in _COUNTED or line.subject == link]
    rest = [line for line in lines if line.kind in _COUNTED and line.subject != link]
    changes = Counter(line.kind for line in rest if isinstance(line, Change))
    remarks = Counter(line.kind for line in rest if isinstance(line, Remark))
    said = [f"{_counts(changes)} to change"] if changes else []
    said += [f"remarks on {_counts(remarks)}"] if remarks else []
    return [*each, f"besides records: {'; '.join(said)} (--details shows each)"] if said else each


def _counts(found: Counter[str]) -> str:
    return ", ".join(count_phrase(found[kind], name) for kind, name in _COUNTED.items() if found[kind])


@dataclass(frozen=True, slots=True)
class RunPlan:
    """By link: steps, `besides`: changes other than records, `away`: why the plan is unknown."""

    steps: tuple[tuple[str, PlanStep | Cost], ...]
    besides: tuple[tuple[str, PreviewLine], ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> list[dict[str, Any]]:
        values: list[dict[str, Any]] = [{"link": name, "step": "unknown", "sentence": why} for name, why in self.away]
        values += [_values(name, step) for name, step in self.steps]
        return values + [{"link": name, "step": _kind(line), **asdict(line)} for name, line in self.besides]

    def sentences(self) -> list[str]:
        """Returns every step and value; unknown plans first."""
        said = [f"{name}: {describe_step(step)}" for name, step in self.steps]
        return [*self._unknown(), *said, *(f"{name}: {line}" for name, line in self.besides), *self._nothing()]

    def lines(self) -> list[str]:
        """Returns a line for each topic; unknown plans first."""
        said: list[str] = []
        for link in dict.fromkeys(name for name, _ in (*self.steps, *self.besides)):
            steps = [step for name, step in self.steps if name == link]
            besides = [line for name, line in self.besides if name == link]
            said += [f"{link}: {line}" for line in summarize_plan(link, steps, besides)]
        return [*self._unknown(), *said, *self._nothing()]

    def _unknown(self) -> list[str]:
        return [f"{name}: the plan is unknown: {why}" for name, why in self.away]

    def _nothing(self) -> list[str]:
        if self.steps or self.away:
            return []
        return [
            "nothing to do: the links' filters admit no topic that their sources show to the mirror's user;"
            " `twinshore link list` shows the filters, and a user sees the topics that it may Describe"
        ]


def plan_run(links: Sequence[str], settings: Settings, store: Store, *, rate_bytes_s: float = 0.0) -> RunPlan:
    """Plans each link; a cluster's failure goes into `away`. `rate_bytes_s`: for durations; 0: as measured. StoreError
    when the store is not writable.
    """
    chosen = settings.chosen(links)
    check_chosen_links(settings, chosen)
    store.leases.check_writable()
    steps: list[tuple[str, PlanStep | Cost]] = []
    besides: list[tuple[str, PreviewLine]] = []
    away: list[tuple[str, str]] = []
    shared = one_shot_connections(PLAN_CLIENT_ID)
    effective = effective_links(settings.links, store)
    for effective_link in [effective[link.name] for link in chosen]:
        link = effective_link.link
        for trouble in effective_link.troubles:
            log.warning(f"{link.name}: {trouble}", extra={"link": link.name})
        try:
            found = list(preview_link(link, settings, store, shared, rate_bytes_s))
            carried = {step.topic for step in found if not isinstance(step, Refuse | AtHome | Stay)}
            lines = list(follows(link, settings, store, shared, carried))
        except KafkaError as error:
            away.append((link.name, str(error)))
            continue
        steps += [(link.name, step) for step in found]
        besides += [(link.name, line) for line in lines]
    return RunPlan(tuple(steps), tuple(besides), tuple(away))


def _values(link: str, step: PlanStep | Cost) -> dict[str, Any]:
    values = asdict(step)
    if "settings" in values:
        values["settings"] = dict(values["settings"])
    return {"link": link, "step": _kind(step), **values}


def _kind(step: PlanStep | Cost | PreviewLine) -> str:
    return type(step).__name__.lower()
