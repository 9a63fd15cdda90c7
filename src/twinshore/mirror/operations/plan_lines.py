"""A plan in one line a topic, and one for what follows besides records: what is read before the details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from twinshore.fleet.sentences import copies, counted, listed
from twinshore.mirror.driver.preview import called, in_words
from twinshore.mirror.follow import acls, quotas, topic_settings
from twinshore.mirror.follow.change import Change, Remark
from twinshore.mirror.mapping.cost import Cost
from twinshore.mirror.planned import AtHome, CarryTopic, Create, Grow, Refuse, Rest, Settle, Stay, Step

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
