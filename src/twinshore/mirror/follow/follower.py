"""Every few seconds: compare both clusters in everything but records, and make the target follow.

A separate task, so that no slow errand here holds up what carries records. It acts
only while the link is this process's own, and everything it does may be done twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from twinshore.fleet import Link, StoreError
from twinshore.fleet.sentences import listed
from twinshore.fleet.settings import Settings
from twinshore.mirror.follow import topic_settings
from twinshore.mirror.follow.endings import Endings
from twinshore.mirror.follow.hands import Hands
from twinshore.mirror.follow.memories import COMPACTED, Cleaned, cleaned_of, cleaned_row, compacts
from twinshore.mirror.follow.reading import Comparing, own_users
from twinshore.mirror.follow.rules import Rules
from twinshore.mirror.follow.safety_now import SafetyNow
from twinshore.service.cause_log import Trouble, with_causes
from twinshore.service.clock import wall_ms
from twinshore.service.connections import PATIENT
from twinshore.service.ends import Ends
from twinshore.service.identity import hold_to
from twinshore.service.scheduler import tasks
from twinshore.store import Remembered, Store

TOPICS_AT_ONCE = 100  # whose settings are compared in one look; the others' come in the next ones
REST_S = 0.2


class Follower:
    """`link` gives the link as it holds now, whatever operators have said since. `active`: whether it is ours to act
    for. `leaves`: whether a switch has the topic, and gives its twin other settings. `log` gets a sentence for whatever
    changes, once."""

    def __init__(
        self,
        link: Callable[[], Link],
        settings: Settings,
        store: Store,
        safety: SafetyNow,
        *,
        active: Callable[[], bool],
        log: Callable[[str], None],
        leaves: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._leaves = leaves
        self._now, begins = link, link()
        self._ends = Ends(begins, settings, patience_s=10.0, shared=PATIENT)
        self._source, self._target = self._ends.source, self._ends.target
        self._store = store
        self._active = active
        self._log = with_causes(log)
        self._hands = Hands(begins.name, self._target, store, log)
        given = (self._source, self._target, store, self._hands)
        self.endings = Endings(begins, *given, links=settings.links, safety=safety, active=active)
        self._troubles: dict[str, Trouble] = {}
        self._held = False
        self._next_topic = ""
        us = own_users(settings)
        self.rules = Rules(link, *given, active=active, wake=self.heed, survey_s=settings.mirror.refresh_s, ours=us)
        self._task = tasks.every(
            f"follow {begins.name}",
            self._go,
            asks=(begins.source, begins.target),
            first_s=begins.follow.every_s,
            rest_s=REST_S,
        )

    @property
    def _link(self) -> Link:
        """The link as it holds now."""
        return self._now()

    def doubt(self, topics: Iterable[str]) -> None:
        """Pumps stopped at these: look at once."""
        if self.endings.doubt(topics):
            self._task.wake()

    def heed(self) -> None:
        """Operators said something: look at once."""
        self._task.wake()

    def close(self) -> None:
        self._task.close()
        self._ends.close()

    def _go(self) -> float:
        if self._active():
            self.look()
        return REST_S + self._link.follow.every_s

    def look(self) -> None:
        """One look at everything that follows; what cannot be done is told, and hinders nothing else."""
        try:
            self._held = self._held or hold_to(self._link, self._store, self._source, self._target)
        except Exception as error:
            self._trouble("anything").say("nothing follows now", error)
            return
        self._trouble("anything").well("what follows is looked at again")
        parts: dict[str, Callable[[], None]] = {
            "ACLs": self.rules.look,  # first: new topics wait for it
            "topics": self.endings.look,
            "topic settings": self._settings,
            "quotas": self._quotas,
            "SCRAM users": self._users,
            "notes for the audit": self._hands.write_audit,
        }
        for what, part in parts.items():
            if not self._active():
                return
            try:
                part()
            except Exception as error:
                self._trouble(what).say(f"{what} do not follow now", error)
            else:
                self._trouble(what).well(f"{what} follow again")

    def _trouble(self, what: str) -> Trouble:
        if what not in self._troubles:
            self._troubles[what] = Trouble(self._link.name, what, self._tell, self._log)
        return self._troubles[what]

    def _tell(self, sentence: str) -> None:
        with suppress(StoreError):
            self._log(f"{self._link.name}: {sentence}")

    def _ids(self) -> dict[str, str]:
        """Each topic that has a twin, and the twin's topic id."""
        return {row.topic: row.target_topic_id for row in self._store.twins.of(self._link.name)}

    # -- topic settings

    def _settings(self) -> None:
        ids = self._ids()
        twins = {
            topic: self._link.twin_of(topic)
            for topic in ids
            if self.endings.is_plain(topic) and not self._leaves(topic)
        }
        chosen = self._turn(sorted(twins))
        if not chosen:
            return
        plan = self._comparing().settings(chosen)
        self._remark("settings left", list(plan.silent.values()))
        for topic, wanted in plan.wanted.items():
            if self._active() and not self._leaves(topic):
                self._hands.alter_settings(twins[topic], ids[topic], wanted)
        source, chosen = plan.source, list(plan.source)
        known = {row.subject: row.value for row in self._store.memories.of(self._link.name, topic_settings.KIND)}
        now = {topic: topic_settings.remembered(source[topic]) for topic in chosen}
        rows = [
            Remembered(self._link.name, topic_settings.KIND, topic, value, "source", wall_ms())
            for topic, value in now.items()
            if known.get(topic) != value
        ]
        for row in rows:
            if row.subject in known and _cleanup(known[row.subject]) != _cleanup(row.value):
                self.endings.again(row.subject)  # What kind of twin it needs is for the planner to say.
        # First, since it is known from the row before this one only.
        self._store.memories.remember(self._compacted(source, known, chosen))
        self._store.memories.remember(rows)

    def _compacted(
        self, source: Mapping[str, topic_settings.SettingsOf], known: Mapping[str, str], chosen: Iterable[str]
    ) -> list[Remembered]:
        """Topics that are compacted, or were when they were looked at last: a proof has to know for as long as the
        cleaned part is there."""
        before = cleaned_of(self._store.memories.of(self._link.name, COMPACTED))
        ids = {row.topic: row.source_topic_id for row in self._store.twins.of(self._link.name)}
        rows = []
        for topic in chosen:
            is_compacted = compacts(source[topic].in_force.get("cleanup.policy"))
            old, new = before.get(topic), Cleaned(ids.get(topic, ""))
            anew = old is None or old.source_id != new.source_id
            if (is_compacted and old != new) or (anew and compacts(_cleanup(known.get(topic, "")))):
                rows.append(cleaned_row(self._link.name, topic, new, wall_ms()))
        return rows

    def _turn(self, topics: list[str]) -> list[str]:
        """The next of the topics: all of them where they are few, else by turns."""
        if len(topics) <= TOPICS_AT_ONCE:
            return topics
        rest = [topic for topic in topics if topic > self._next_topic]
        chosen = (rest + topics)[:TOPICS_AT_ONCE]
        self._next_topic = chosen[-1]
        return sorted(set(chosen))

    # -- quotas and users

    def _quotas(self) -> None:
        plan = self._comparing().quotas()
        if plan is None:
            return
        self._remark("quotas left", [str(one) for one in plan.remarks])
        if self._active():
            self._hands.apply_quotas(plan)

    def _users(self) -> None:
        plan = self._comparing().users()
        if plan is None:
            return
        self._remark("users left", [str(one) for one in plan.remarks])
        if self._active():
            self._hands.apply_users(plan, dict(self._link.follow.users))

    def _comparing(self) -> Comparing:
        return Comparing(self._link, self._source, self._target, self._store)

    def _remark(self, what: str, sentences: list[str]) -> None:
        if sentences:
            self._trouble(what).remark(listed(sentences, 5, "; "))
        else:
            self._trouble(what).well()


def _cleanup(remembered: str) -> str:
    return str(json.loads(remembered or "{}").get("cleanup.policy", ""))
