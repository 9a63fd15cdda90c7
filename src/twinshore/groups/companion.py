"""Rounds of one link, in a task beside its mirror: they can be late or fail, and hinder no record."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from twinshore.fleet import KafkaError, Link, TwinshoreError
from twinshore.fleet.settings import Settings
from twinshore.groups.book import TOLD_AFTER_S
from twinshore.groups.home_line import HomeRelay
from twinshore.groups.rounds import Round, Rounds, names_row
from twinshore.groups.word import COMPARED_KIND, compared_among, word_of
from twinshore.mirror.incidents import link_row
from twinshore.mirror.metrics.words import GROUPS_KIND
from twinshore.service.cause_log import with_causes
from twinshore.service.clock import wall_ms
from twinshore.service.companions import Beside, Companion
from twinshore.service.scheduler import tasks
from twinshore.store import IncidentKind, Remembered, Store

ROUND, GROUPS = "round", "groups"
WORD_S = 2.0
CLOSE_S = 2.0
SAID_AGAIN_S = 3600.0
SAID_MAX = 1000
# A round that takes longer than its interval leaves the machine to others for a part of it.
REST_PART = 0.2


class GroupsCompanion:
    """`active`: whether the link is ours to act for. `log` gets a sentence for what changed or failed, once."""

    def __init__(
        self, link: Link, settings: Settings, store: Store, *, active: Callable[[], bool], log: Callable[[str], None]
    ) -> None:
        self._link, self._settings, self._store = link, settings, store
        self._active, self._log = active, with_causes(log)
        self._said: dict[str, tuple[str, float]] = {}
        self._word_at_s = 0.0
        self._compared: frozenset[str] | None = None
        # What an earlier process has told stays so until all was tried again.
        self._began_s = float("inf")
        self._settles_s = link.groups.verify_s + TOLD_AFTER_S
        self.last: Round | None = None
        self.totals: dict[str, int] = {"rounds": 0, "failed": 0, "moved": 0}
        self._closed = threading.Event()
        self._rounds: Rounds | None = None
        self._relay: HomeRelay | None = None
        self._task = tasks.every(f"groups {link.name}", self._turn, asks=(link.source, link.target), last=self._let_go)

    def close(self) -> None:
        """A round that waits for a cluster is not waited for: each commit is whole by itself."""
        self._closed.set()
        self._task.close(CLOSE_S)

    def _let_go(self) -> None:
        if self._rounds is not None:
            self._rounds.close()
            self._rounds = None

    def _turn(self) -> float:
        every_s, begun_s = self._link.groups.every_s, time.monotonic()
        if self._active():
            if self._rounds is None:
                self._rounds = Rounds(self._link, self._settings, self._store, leaves=True)
                clusters = (self._rounds.source, self._rounds.target)
                self._relay = HomeRelay(self._store, clusters, self._log)
                self._began_s = begun_s
            self._round(self._rounds)
        elif self._rounds is not None:
            # Another process moves them now; what is remembered here will be wrong when it is ours again.
            self._let_go()
            self._compared = None
        took_s = time.monotonic() - begun_s
        return max(every_s - took_s, every_s * REST_PART)

    def _may(self) -> bool:
        return self._active() and not self._closed.is_set()

    def _round(self, rounds: Rounds) -> None:
        assert self._relay is not None
        try:
            self._relay.turn(time.monotonic())
            done = rounds.run(time.monotonic(), may=self._may)
        except TwinshoreError as error:
            self.totals["failed"] += 1
            self._relay.again()
            if not isinstance(error, KafkaError) or not error.silent:
                self._say({ROUND: f"groups do not follow now: {error}"})
            elif not self._closed.is_set():
                self._log.silent(error.silent, self._link.name, GROUPS, error.cause)
        except Exception as error:
            # Whatever it is, records go on, and so does the next round.
            self.totals["failed"] += 1
            self._say({ROUND: f"groups do not follow now: {type(error).__name__}: {error}"})
        else:
            self.last = done
            self._log.answers(self._link.name, GROUPS)
            self.totals["rounds"] += 1
            self.totals["moved"] += sum(done.moved.values())
            self._say(done.told)
            self._leave_word(rounds, done)

    def _say(self, told: dict[str, str]) -> None:
        """Each sentence once, and again when it is still true after an hour."""
        now_s = time.monotonic()
        for key, sentence in told.items() if not self._closed.is_set() else ():
            said, at_s = self._said.get(key, ("", 0.0))
            if said != sentence or now_s - at_s > SAID_AGAIN_S:
                self._said[key] = (sentence, now_s)
                self._log(f"{self._link.name}: {sentence if key == ROUND else f'{key}: {sentence}'}")
        if ROUND in self._said and ROUND not in told:
            del self._said[ROUND]
            self._log(f"{self._link.name}: groups follow again")
        if len(self._said) > SAID_MAX:
            self._said = dict(list(self._said.items())[-SAID_MAX:])

    def _leave_word(self, rounds: Rounds, done: Round) -> None:
        """For `groups` and whoever else wants to know how old a difference is."""
        now_s = time.monotonic()
        if now_s - self._word_at_s < WORD_S:
            return
        self._word_at_s = now_s
        now_ms = wall_ms()
        entries = rounds.entries()
        value = json.dumps(word_of(entries, done, now_s=now_s, now_ms=now_ms, waiting=rounds.waiting()))
        rows = [Remembered(self._link.name, GROUPS_KIND, "", value, GROUPS_KIND, now_ms)]
        names = compared_among(entries)
        if names != self._compared:
            rows.append(names_row(self._link.name, COMPARED_KIND, names, now_ms))
        refused = rounds.refusals(now_s)
        try:
            self._store.memories.remember(rows)
            self._compared = names
            if refused or now_s - self._began_s > self._settles_s:
                link_row.tell(self._store, self._link.name, IncidentKind.GROUP_REFUSED, refused, self._log)
        except TwinshoreError as error:
            self._log(f"{self._link.name}: {error}")


class Nobody:
    """Beside a link whose groups do not follow."""

    def close(self) -> None:
        """Nothing runs."""


def begin(beside: Beside) -> Companion:
    """Starts what the link's rules ask for."""
    if not beside.link.groups.enabled:
        return Nobody()
    return GroupsCompanion(beside.link, beside.settings, beside.store, active=beside.active, log=beside.log)
