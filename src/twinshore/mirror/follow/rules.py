"""ACLs that follow, with hands; and whether the rules of a new twin stand, before which nothing is carried to it.

A topic that the planner wants to carry for the first time is asked for by the driver's task and looked at by the
follower's. Its rules stand when a look finds them all on the target.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link, TwinshoreError
from twinshore.fleet.incidents import IncidentSide
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights import Acl, Resource
from twinshore.kafka.rights_requests import read_acls
from twinshore.mirror.follow import acls
from twinshore.mirror.follow.acls import Ground
from twinshore.mirror.follow.hands import Hands
from twinshore.mirror.follow.reading import Comparing, principal
from twinshore.mirror.incidents import link_row
from twinshore.mirror.lane.answers import RIGHTS
from twinshore.mirror.planned import CarryTopic, Refuse
from twinshore.store import IncidentKind, Store

ASKED_S_MIN = 30.0  # so long a topic is expected after it was asked for
NO_RULES_HINT = "or `acls = false` in the link's section `follow`, to carry it without rules"


@dataclass(frozen=True, slots=True)
class _Why:
    """Why rules do not stand: a kind of the ledger's, and what is to be done."""

    kind: IncidentKind
    sentence: str
    hint: str
    side: IncidentSide


class Rules:
    """One link's; `link` gives it as it holds now. `admit` and `news` are the driver's, `look` the follower's. `wake`:
    have a look soon. `ours`: all users of Twinshore that the settings name."""

    def __init__(
        self,
        link: Callable[[], Link],
        source: KafkaCluster,
        target: KafkaCluster,
        store: Store,
        hands: Hands,
        *,
        active: Callable[[], bool],
        wake: Callable[[], None],
        survey_s: float,
        ours: frozenset[str] = frozenset(),
    ) -> None:
        self._now, self._source, self._target, self._store, self._hands = link, source, target, store, hands
        self._active, self._wake, self._ours = active, wake, ours
        self._asked_s_max = max(ASKED_S_MIN, 3 * survey_s)
        self._guard = threading.Lock()
        self._asked_s: dict[str, float] = {}
        self._standing: set[str] = set()
        self._why: dict[str, _Why] = {}
        self._none_follow = not link().follow.acls
        self._news = False

    @property
    def _link(self) -> Link:
        """The link as it holds now."""
        return self._now()

    # -- the driver's

    def admit(self, steps: Sequence[CarryTopic], known: Container[str]) -> tuple[list[CarryTopic], list[Refuse]]:
        """The steps of `known` topics, and of others whose rules stand; and why some of the rest must wait."""
        now_s = time.monotonic()
        with self._guard:
            if self._none_follow:
                return list(steps), []
            fresh = {step.topic for step in steps if step.topic not in known}
            self._asked_s.update(dict.fromkeys(fresh, now_s))
            waiting = fresh - self._standing
            refused = [
                Refuse(topic, why.kind, f"topic {topic} waits for its ACLs: {why.sentence}", why.hint, why.side)
                for topic in sorted(waiting)
                if (why := self._why.get(topic)) is not None
            ]
        if waiting:
            self._wake()
        return [step for step in steps if step.topic not in waiting], refused

    def news(self) -> bool:
        """Whether topics that waited may go since this was last asked."""
        with self._guard:
            news, self._news = self._news, False
        return news

    # -- the follower's

    def look(self) -> None:
        """Compares both sides' rules and makes the target's follow, where they shall. Tells who else may change
        Twinshore's own topics on either side."""
        if not self._link.follow.acls:
            self._set_none_follow(none=True)
            with suppress(TwinshoreError):
                self._tell_open_topics(read_acls(self._source), read_acls(self._target))
            return
        stored = {row.topic for row in self._store.twins.of(self._link.name)}
        soon = self._expected(stored)
        try:
            theirs = self._read(self._source, IncidentKind.SOURCE_AWAY, soon)
            ours = self._read(self._target, IncidentKind.TARGET_AWAY, soon)
        except KafkaError as error:
            if error.code in RIGHTS:
                self._set_none_follow(none=True)
            raise
        self._tell_open_topics(theirs, ours)
        self._set_none_follow(none=theirs is None or ours is None)
        if theirs is None or ours is None or not (soon or stored):
            return
        try:
            reason = self._follow(theirs, ours, stored | soon, soon)
        except KafkaError as error:
            self._tell(dict.fromkeys(soon, _because(IncidentKind.TARGET_AWAY, error)))
            raise
        if reason:
            raise KafkaError(reason)

    def _tell_open_topics(self, *rules: frozenset[Acl] | None) -> None:
        """Of a cluster that does not say whom it takes the mirror for, nothing can be told."""
        if not self._active():
            return
        said = [
            acls.open_in_words(
                cluster.name, cluster.cluster.bootstrap[0], acls.open_own_topics(some, self._ours | {us})
            )
            for cluster, some in zip((self._source, self._target), rules, strict=True)
            if some is not None and (us := principal(self._link, cluster))
        ]
        sentence = "; ".join(filter(None, said))
        link_row.tell(self._store, self._link.name, IncidentKind.OWN_TOPICS_OPEN, sentence, self._hands.log)

    def _follow(self, theirs: frozenset[Acl], ours: frozenset[Acl], topics: set[str], soon: set[str]) -> str:
        """Why no rule can follow; empty where they do."""
        known = self._store.memories.of(self._link.name)
        sight = Comparing(self._link, self._source, self._target, self._store).acls(theirs, ours, topics, known)
        twins = sight.floor.twins
        if sight.reason:
            self._judge(soon, _without_us(theirs, sight.floor, soon, sight.reason), set())
            return sight.reason
        if not self._active():
            return ""
        refused = self._hands.apply_acls(sight.plan, sight.want, known)
        why = {
            acl.name: _because(IncidentKind.TARGET_AWAY, error)
            for acl, error in refused.items()
            if acl.resource == Resource.TOPIC
        }
        self._judge(
            soon, {topic: why[twins[topic]] for topic in soon if twins[topic] in why}, _places(sight.plan.create)
        )
        return ""

    def _judge(self, soon: set[str], why: Mapping[str, _Why], made: set[str]) -> None:
        """What was made a moment ago stands when the next look sees it."""
        self._tell(why)
        unseen = {topic for topic in soon if self._link.twin_of(topic) in made}
        stands = soon - why.keys() - unseen
        with self._guard:
            self._news |= bool(stands - self._standing)
            self._standing |= stands
            self._standing -= why.keys()
            for topic in stands:
                self._why.pop(topic, None)
        if unseen - why.keys():
            self._wake()

    def _expected(self, stored: Container[str]) -> set[str]:
        """Topics that were asked for lately and have no twin yet."""
        now_s = time.monotonic()
        with self._guard:
            self._asked_s = {
                topic: at_s
                for topic, at_s in self._asked_s.items()
                if topic not in stored and now_s - at_s < self._asked_s_max
            }
            self._standing &= self._asked_s.keys()
            self._why = {topic: why for topic, why in self._why.items() if topic in self._asked_s}
            return set(self._asked_s)

    def _read(self, cluster: KafkaCluster, kind: IncidentKind, soon: set[str]) -> frozenset[Acl] | None:
        try:
            return read_acls(cluster)
        except KafkaError as error:
            if error.code not in RIGHTS:
                self._tell(dict.fromkeys(soon, _because(kind, error)))
            raise

    def _set_none_follow(self, *, none: bool) -> None:
        """No ACL follows, by the settings, for want of an authorizer or of the right to read: nothing waits for any."""
        with self._guard:
            self._news |= none and not self._none_follow
            self._none_follow = none

    def _tell(self, why: Mapping[str, _Why]) -> None:
        with self._guard:
            self._why.update(why)
            self._standing -= why.keys()


def _because(away: IncidentKind, error: KafkaError) -> _Why:
    if error.code in RIGHTS:
        return _Why(IncidentKind.RIGHTS_LOST, error.message, f"{error.hint}, {NO_RULES_HINT}", away.side)
    kind = away if error.retriable else IncidentKind.REFUSED
    return _Why(kind, error.message, error.hint or "it goes on by itself once that is over", away.side)


def _without_us(theirs: frozenset[Acl], floor: Ground, soon: set[str], reason: str) -> dict[str, _Why]:
    """Topics whose twins everybody could use until the mirror knows who it is."""
    shut = {topic for topic in soon if floor.shut_unless_ruled or acls.speaks_of(theirs, topic)}
    return dict.fromkeys(
        shut, _Why(IncidentKind.REFUSED, reason, f"set `principal`, {NO_RULES_HINT}", IncidentSide.TARGET)
    )


def _places(rules: Sequence[Acl]) -> set[str]:
    return {acl.name for acl in rules if acl.resource == Resource.TOPIC}
