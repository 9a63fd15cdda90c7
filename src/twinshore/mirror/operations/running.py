"""What running links would begin with, and what each topic will take: looked at, and none of it done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twinshore.fleet import KafkaError
from twinshore.fleet.sentences import copies, counted, listed
from twinshore.fleet.settings import Settings
from twinshore.mirror.driver.first_words import check_chosen
from twinshore.mirror.driver.preview import called, holding, in_words, preview
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.acts import Change, Remark
from twinshore.mirror.follow.preview import Line
from twinshore.mirror.follow.preview import preview as follows
from twinshore.mirror.mapping.cost import Cost
from twinshore.mirror.planned import AtHome, CarryTopic, Create, Grow, Refuse, Rest, Settle, Stay, Step
from twinshore.service.connections import once
from twinshore.store import Store

# Kinds of which there may be a line for each topic, rule or user: one of them in words. All others are shown each.
_COUNTED = {topic_settings.KIND: "topic setting", acls.KIND: "ACL", quotas.QUOTA: "quota", quotas.USER: "SCRAM user"}
NAMED_MAX = 3


def lines_of(link: str, steps: Iterable[Step | Cost], besides: Iterable[Change | Remark]) -> list[str]:
    """The lines for one link."""
    topics: dict[str, list[Step | Cost]] = {}
    for step in steps:
        topics.setdefault(step.topic, []).append(step)
    return [line for ours in topics.values() for line in _topic(ours)] + _besides(link, list(besides))


def _topic(steps: Sequence[Step | Cost]) -> list[str]:
    """One line, unless a topic is refused for several reasons."""
    refused = [in_words(step) for step in steps if isinstance(step, Refuse | Stay)]
    if refused:
        return refused
    rests = [step for step in steps if isinstance(step, Rest)]
    makes = [step for step in steps if isinstance(step, Create | CarryTopic)]
    if not makes and rests:
        more = f" (and {counted(len(rests) - 1, 'more partition')})" if len(rests) > 1 else ""
        return [in_words(rests[0]) + more]
    if not makes:
        return [in_words(step) for step in steps]
    said = [_shape(step) for step in makes]
    for step in steps:
        match step:
            case Grow(_, partitions):
                said.append(f"its twin grows to {partitions} partitions")
            case Settle(_, settings):
                said.append(f"{counted(len(settings), 'setting')} of its twin to change")
            case AtHome(_, home):
                said.append(f"at home on {home}")
    if rests:
        said.append(f"without {listed([_rest(one) for one in rests], NAMED_MAX)}")
    costs = [f"; {step.figures}" for step in steps if isinstance(step, Cost)]
    return [", ".join(said) + "".join(costs)]


def _shape(step: Create | CarryTopic) -> str:
    partitions = counted(step.partitions, "partition")
    if isinstance(step, Create):
        return f"create twin {called(step.topic, step.twin)}: {partitions}, {copies(step.replication)}"
    return f"carry {called(step.topic, step.twin)}: {partitions}{', mapped' if step.mapped else ''}"


def _rest(step: Rest) -> str:
    then = "tried again by itself" if step.retries else "then `twinshore mirror resume`"
    return f"{step.topic}-{step.partition} (incident {step.incident}, {step.kind}; {then})"


def _besides(link: str, lines: Sequence[Change | Remark]) -> list[str]:
    """A line each for what speaks of a topic as a whole or of the link, counts for the rest."""
    each = [str(line) for line in lines if line.kind not in _COUNTED or line.subject == link]
    rest = [line for line in lines if line.kind in _COUNTED and line.subject != link]
    changes = Counter(line.kind for line in rest if isinstance(line, Change))
    remarks = Counter(line.kind for line in rest if isinstance(line, Remark))
    said = [f"{_counts(changes)} to change"] if changes else []
    said += [f"remarks on {_counts(remarks)}"] if remarks else []
    return [*each, f"besides records: {'; '.join(said)} (--details shows each)"] if said else each


def _counts(found: Counter[str]) -> str:
    return ", ".join(counted(found[kind], name) for kind, name in _COUNTED.items() if found[kind])


@dataclass(frozen=True, slots=True)
class RunPlan:
    """By link: each step, what follows besides records, and why nobody can tell what a link would do."""

    steps: tuple[tuple[str, Step | Cost], ...]
    besides: tuple[tuple[str, Line], ...]
    away: tuple[tuple[str, str], ...]

    def as_values(self) -> list[dict[str, Any]]:
        """For programs."""
        values: list[dict[str, Any]] = [{"link": name, "step": "unknown", "sentence": why} for name, why in self.away]
        values += [_values(name, step) for name, step in self.steps]
        return values + [{"link": name, "step": _kind(line), **asdict(line)} for name, line in self.besides]

    def sentences(self) -> list[str]:
        """For people, every step and value: first what is not known."""
        said = [f"{name}: {in_words(step)}" for name, step in self.steps]
        return [*self._unknown(), *said, *(f"{name}: {line}" for name, line in self.besides), *self._nothing()]

    def lines(self) -> list[str]:
        """For people, a line for each topic: first what is not known."""
        said: list[str] = []
        for link in dict.fromkeys(name for name, _ in (*self.steps, *self.besides)):
            steps = [step for name, step in self.steps if name == link]
            besides = [line for name, line in self.besides if name == link]
            said += [f"{link}: {line}" for line in lines_of(link, steps, besides)]
        return [*self._unknown(), *said, *self._nothing()]

    def _unknown(self) -> list[str]:
        return [f"{name}: cannot tell what it would do: {why}" for name, why in self.away]

    def _nothing(self) -> list[str]:
        if self.steps or self.away:
            return []
        return [
            "nothing to do: the links' filters admit no topic that their sources show to the mirror's user;"
            " `twinshore link list` shows the filters, and a user sees the topics that it may Describe"
        ]


def plan_of_running(
    links: Sequence[str], settings: Settings, store: Store, *, rate_bytes_s: float = 0.0, log: Callable[[str], None]
) -> RunPlan:
    """Asks both clusters of each link; one that does not answer is the word on its link. `rate_bytes_s`: for durations;
    0: as it was measured. StoreError where the store could not be written."""
    chosen = settings.chosen(links)
    check_chosen(settings, chosen)
    store.leases.check_writable()
    steps: list[tuple[str, Step | Cost]] = []
    besides: list[tuple[str, Line]] = []
    away: list[tuple[str, str]] = []
    shared = once("twinshore-plan")
    for link in [holding(one, settings, store, log) for one in chosen]:
        try:
            found = list(preview(link, settings, store, shared, rate_bytes_s))
            carried = {step.topic for step in found if not isinstance(step, Refuse | AtHome | Stay)}
            lines = list(follows(link, settings, store, shared, carried))
        except KafkaError as error:
            away.append((link.name, str(error)))
            continue
        steps += [(link.name, step) for step in found]
        besides += [(link.name, line) for line in lines]
    return RunPlan(tuple(steps), tuple(besides), tuple(away))


def _values(link: str, step: Step | Cost) -> dict[str, Any]:
    values = asdict(step)
    if "settings" in values:
        values["settings"] = dict(values["settings"])
    return {"link": link, "step": _kind(step), **values}


def _kind(step: Step | Cost | Line) -> str:
    return type(step).__name__.lower()
