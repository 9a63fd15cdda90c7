"""Follows operators' overrides for one link, and sends rate limits to the link's tasks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, LinkControl
from twinshore.kafka.clock import wall_ms
from twinshore.replication import stopped_partitions
from twinshore.replication.core.filters import admits, filters_json
from twinshore.replication.core.link_config import resolve_filter_conflicts
from twinshore.replication.core.shares import task_rate_limits
from twinshore.replication.links import read_operator_links
from twinshore.replication.task.core.messages import TaskRateLimits
from twinshore.runtime.logging import LinkLogger
from twinshore.state.core.values import LinkStateRow
from twinshore.state.store import Store

if TYPE_CHECKING:
    from twinshore.replication.coordinator_server import CoordinatorServer

log = logging.getLogger(__name__)

OVERRIDES_POLL_INTERVAL_S = 1.0
# Link state in the store: for processes with other settings of the link.
EFFECTIVE_FILTERS_KIND = "filters in force"
TopicVersion = tuple[str, int]


class OperatorOverrides:
    """`link`: the link as in effect; filters that could loop or collide do not count."""

    def __init__(self, link: Link, links: Sequence[Link], store: Store) -> None:
        self._begins, self._links, self._store = link, links, store
        self._log = LinkLogger(log, link.name)
        self._versions: tuple[object, ...] = ()
        self._looked_at_s = 0.0
        self._said: tuple[str, ...] = ()
        self._parting: set[str] = set()
        self._unpublished = ""
        self.link = link

    def anew(self) -> None:
        """Reads and reports all again: another process may have run the link with other settings."""
        self._versions, self._looked_at_s = (), 0.0

    def changed(self) -> bool:
        """Whether the effective link has changed since the last call."""
        looked_at_s = time.monotonic()
        if looked_at_s - self._looked_at_s < OVERRIDES_POLL_INTERVAL_S:
            return False
        links = tuple(self._links)  # the links may change at any moment
        # Overrides of another link, and links that come or go, may end a conflict or begin one.
        versions = (*(self._store.controls.version_lately(link.name) for link in links), *links)
        if versions == self._versions:
            self._looked_at_s = looked_at_s
            return False
        name = self._begins.name
        said = read_operator_links(links, self._store)
        now = resolve_filter_conflicts(links, said)[name]
        clashes = now.link != said[name].link
        self._tell(said[name].troubles)
        clash = now.troubles[-1] if clashes else ""
        stopped_partitions.report_link_incident(self._store, name, IncidentKind.CLASHING_FILTERS, clash)
        self._begin_to_hold(filters_json(now.link))
        # Only now: if the store failed before this, the next call takes the change again.
        self._versions, self._looked_at_s = versions, looked_at_s
        if now.link == self.link:
            return False
        self.link = now.link
        return True

    def pauses(self, topic: str) -> bool:
        return self.link.control.pauses(topic)

    def flowing(self, names: Mapping[str, TopicVersion]) -> dict[str, TopicVersion]:
        """Returns topics that may be replicated now; those leaving their tasks must have left first."""
        return {name: seen for name, seen in names.items() if name not in self._parting and not self.pauses(name)}

    def take_unwanted_topics(
        self, placed: Set[str], withdraw: Callable[[str], bool], elsewhere: Container[str] = ()
    ) -> list[str]:
        """Withdraws topics that may not be replicated; returns new ones, once. `withdraw` is called until True.
        `elsewhere`: topics with another home.
        """
        unwanted = {
            topic for topic in placed if self.pauses(topic) or not admits(self.link, topic) or topic in elsewhere
        }
        fresh = sorted(unwanted - self._parting)
        self._parting |= unwanted
        self._parting -= {topic for topic in self._parting if withdraw(topic)}
        return fresh

    def parted(self, topic: str) -> str:
        return f"topic {topic} {'is paused' if self.pauses(topic) else 'is no longer admitted'}"

    def acknowledge(self, *, tasks_left: bool) -> None:
        """Publishes the effective filters once no task writes other topics. Until then all twins of the link are its
        own. `tasks_left`: whether closed tasks can write nothing any more.
        """
        if self._unpublished and tasks_left and not self._parting:
            kind = EFFECTIVE_FILTERS_KIND
            row = LinkStateRow(self._begins.name, kind, "", self._unpublished, kind, wall_ms())
            self._store.link_states.remember([row])
            self._unpublished = ""

    def _begin_to_hold(self, filters: str) -> None:
        """Withdraws published filters that no longer apply."""
        rows = self._store.link_states.of(self._begins.name, EFFECTIVE_FILTERS_KIND)
        self._unpublished = "" if [row.value for row in rows] == [filters] else filters
        if self._unpublished:
            self._store.link_states.forget(rows)

    def _tell(self, troubles: tuple[str, ...]) -> None:
        for sentence in troubles if troubles != self._said else ():
            self._log.warning(sentence)
        self._said = troubles


def describe_effective_link(link: Link) -> str:
    control = link.control
    said = [
        "paused" if control.paused else "",
        f"topics {', '.join(control.paused_topics)} paused" if control.paused_topics else "",
        f"at most {control.throttle_bytes_s:,} bytes/s" if control.throttle_bytes_s else "",
        *(f"{pattern} at most {rate:,} bytes/s" for pattern, rate in control.topic_throttles),
        *(f"{pattern} has priority {weight}" for pattern, weight in control.priorities),
    ]
    filters = f"topics {json.dumps(list(link.topics))} without {json.dumps(list(link.exclude))}"
    return ", ".join([filters, *(part for part in said if part)])


RATE_LIMITS_INTERVAL_S = 0.5
RATE_CHANGE_MIN = 0.02


class RateLimitPublisher:
    """Sends changes of one link's rate limits."""

    def __init__(self, name: str, coordinator: CoordinatorServer) -> None:
        self._name, self._coordinator = name, coordinator
        self._turned_at_s = 0.0
        self._held = LinkControl()
        self._told: dict[int, TaskRateLimits] = {}

    def turn(self, control: LinkControl, tasks: int) -> None:
        """Sends changes every `RATE_LIMITS_INTERVAL_S`, and at once when `control` has changed."""
        if control == self._held and time.monotonic() - self._turned_at_s < RATE_LIMITS_INTERVAL_S:
            return
        self._held, self._turned_at_s = control, time.monotonic()
        if not (control.throttle_bytes_s or control.topic_throttles or control.priorities or self._told):
            return
        placed: dict[int, set[str]] = {task: set() for task in range(tasks)}
        for partition, task in self._coordinator.placed(self._name).items():
            placed[task].add(partition.topic)
        for task, bounds in task_rate_limits(control, placed, self._coordinator.used(self._name)).items():
            if not _alike(self._told.get(task), bounds):
                self._told[task] = bounds
                self._coordinator.bound((self._name, task), bounds)

    def forget(self) -> None:
        """Forgets sent limits: new tasks have none yet."""
        self._told.clear()


def _alike(told: TaskRateLimits | None, bounds: TaskRateLimits) -> bool:
    if told is None:
        return not (bounds.link or bounds.topics or bounds.weights)
    if told.weights != bounds.weights or told.topics.keys() != bounds.topics.keys():
        return False
    pairs = [(told.link, bounds.link), *((told.topics[name], rate) for name, rate in bounds.topics.items())]
    return all(abs(new - old) <= RATE_CHANGE_MIN * max(old, 1.0) and (new > 0) == (old > 0) for old, new in pairs)
