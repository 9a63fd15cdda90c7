"""Divides a link's throttles among tasks and topics, by what each used and wanted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from twinshore.config.model import PRIORITY_DEFAULT, LinkControl
from twinshore.replication.task.core.messages import TaskRateLimits

IDLE_SHARE = 0.005  # of the whole, for one that needs nothing now: the first bytes then pass at once
IDLE_SHARE_TOTAL = 0.05  # and no more than this for all of them together
HEADROOM_FACTOR = 1.1
# A topic that uses this part of its own throttle cannot use more of the link's.
OWN_THROTTLE_RATIO = 0.8
UsageByTask = Mapping[int, Mapping[str, list[float]]]

K = TypeVar("K", bound=Hashable)


class ThrottleUse(NamedTuple):
    """Bytes fetched a second, and whether the throttle held more back."""

    bytes_s: float
    hungry: bool


NO_USE = ThrottleUse(0.0, hungry=False)


def divide_rate(
    total: float, uses: Mapping[K, ThrottleUse], weights: Mapping[K, float] | None = None
) -> dict[K, float]:
    """Returns bytes a second for each, `total` together at most. A user that is not held back keeps a little more than
    its use; the others share the rest by weight (default 1).
    """
    if not uses:
        return {}
    weight = {user: (weights or {}).get(user, 1.0) for user in uses}
    whole = sum(weight.values())
    idle = total * min(IDLE_SHARE, IDLE_SHARE_TOTAL / len(uses))
    calm = {user: use.bytes_s * HEADROOM_FACTOR + idle for user, use in uses.items() if not use.hungry}
    kept = {user: min(total * weight[user] / whole, wanted) for user, wanted in calm.items()}
    takers = {user: weight[user] for user, use in uses.items() if use.hungry} or weight
    rest = (total - sum(kept.values())) / sum(takers.values())
    return {user: kept.get(user, 0.0) + rest * takers.get(user, 0.0) for user in uses}


def task_rate_limits(
    control: LinkControl, placed: Mapping[int, Iterable[str]], used: UsageByTask
) -> dict[int, TaskRateLimits]:
    """Returns each task's limits. `placed`: the topics of each task; `used`: what each used of the last limits."""
    topics = sorted({topic for task_topics in placed.values() for topic in task_topics})
    own: dict[tuple[int, str], float] = {}
    for topic in topics:
        rate = control.throttle_of(topic)
        if rate:
            at = {task: _use(used, task, topic) for task, task_topics in placed.items() if topic in task_topics}
            own |= {(task, topic): share for task, share in divide_rate(rate, at).items()}
    weights = {topic: control.priority_of(topic) for topic in topics} if control.priorities else {}
    if all(weight == PRIORITY_DEFAULT for weight in weights.values()):
        weights = {}
    link = dict.fromkeys(placed, 0.0)
    by_topic = dict(own)
    if control.throttle_bytes_s and weights:
        parts = _weighed(control.throttle_bytes_s, weights, placed, used, own)
        by_topic = {place: min(share, own.get(place, share)) for place, share in parts.items()}
        for (task, _), share in parts.items():
            link[task] += share
    elif control.throttle_bytes_s:
        link = divide_rate(control.throttle_bytes_s, {task: _use(used, task, "") for task in placed})
    rates: dict[int, dict[str, float]] = defaultdict(dict)
    for (task, topic), share in by_topic.items():
        rates[task][topic] = round(share, 1)
    differing = {topic: weight for topic, weight in weights.items() if weight != PRIORITY_DEFAULT}
    limits = {}
    for task, task_topics in placed.items():
        own_weights = {topic: differing[topic] for topic in task_topics if topic in differing}
        limits[task] = TaskRateLimits(round(link[task], 1), rates[task], own_weights)
    return limits


def _weighed(
    total: float,
    weights: Mapping[str, int],
    placed: Mapping[int, Iterable[str]],
    used: UsageByTask,
    own: Mapping[tuple[int, str], float],
) -> dict[tuple[int, str], float]:
    """Divides first among topics, then among their tasks, for a weight is a topic's on however many tasks."""
    places: dict[str, dict[int, ThrottleUse]] = defaultdict(dict)
    for task, task_topics in placed.items():
        for topic in task_topics:
            places[topic][task] = _within(used, task, topic, own)
    whole = {
        topic: ThrottleUse(sum(use.bytes_s for use in at.values()), any(use.hungry for use in at.values()))
        for topic, at in places.items()
    }
    each = divide_rate(total, whole, {topic: float(weights[topic]) for topic in whole})
    return {
        (task, topic): share for topic, at in places.items() for task, share in divide_rate(each[topic], at).items()
    }


def _use(used: UsageByTask, task: int, name: str) -> ThrottleUse:
    usage = used.get(task, {}).get(name)
    return ThrottleUse(usage[0], bool(usage[1])) if usage else NO_USE


def _within(used: UsageByTask, task: int, topic: str, own: Mapping[tuple[int, str], float]) -> ThrottleUse:
    """A topic held back by the topic's throttle needs no more of the link's."""
    use, bound = _use(used, task, topic), own.get((task, topic), 0.0)
    return use._replace(hungry=False) if bound and use.bytes_s >= OWN_THROTTLE_RATIO * bound else use
