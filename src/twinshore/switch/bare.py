"""A switch without data at work: topics that no link carries are made anew, empty, and their writers go on there.

The new log begins at the offset where the old one ends, so whoever has read all reads on at the same place. What is in
the old one stays there. What takes the offsets below is filler, which is cut off as soon as it is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twinshore.fleet.sentences import are, listed
from twinshore.links.homes import pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import AuditRow, Flip
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.deeds import Deed
from twinshore.switch.hands import empty_logs, settings_given
from twinshore.switch.hands.log_ends import log_ends
from twinshore.switch.record import Record
from twinshore.switch.work import NAMED_MAX, Work, flip_of


class Bare(Work):
    """As `Work`; there is neither a twin nor a link."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._filling = empty_logs.Filling(self._new)
        self._doing = {
            **self._doing,
            Deed.MAKE: self._make,
            Deed.FILL: self._fill,
            Deed.GIVE: lambda record: settings_given.give(self._new, self._link, record),
            Deed.FLIP: self._flip_bare,
            Deed.GUARD: self._guard,
        }

    def _make(self, record: Record) -> Outcome:
        """With the settings of a twin: what fills it must not be taken for records, nor go by itself."""
        if why := empty_logs.lacks_old(self._old, record):
            return Cannot(why)
        if not record.given:
            return Wait("the settings of the topics are written down first", settings_given.look_up(self._old, record))
        made = empty_logs.make(self._new, record)
        if not isinstance(made, Done):
            return made
        if made.record != record:
            return Wait("the ids of the topics are written down before anything is filled in", made.record)
        ends = log_ends(self._old, record.topics).ends
        if empty_logs.is_near(self._new, ends):
            return Done(made.record, f"the topics are there on {record.new}, and nearly end where the old ones do")
        filled = empty_logs.fill(self._filling, made.record, ends)
        return replace(filled, record=made.record)

    def _fill(self, record: Record) -> Outcome:
        filled = empty_logs.fill(self._filling, record, {one.topic: one.ends for one in record.topics})
        if not isinstance(filled, Done):
            return filled
        points = tuple(replace(one, points=one.ends) for one in record.topics)
        return Done(replace(record, topics=points), filled.sentence)

    def _flip_bare(self, record: Record) -> Outcome:
        now_ms, pair = wall_ms(), pair_of(self._link)
        flips = tuple(flip_of(record, one, pair, now_ms) for one in record.topics)
        said = self._words.flip(record, flips)
        told = [_told(record, one, self._link.name) for one in flips]
        done = {one.topic for one in self._store.switching.flip(flips, told)}
        if lacking := [one.topic for one in record.topics if one.topic not in done]:
            return Wait(f"the store has another home of {listed(lacking, NAMED_MAX)}", said)
        names = record.names()
        return Done(said, f"{listed(names, NAMED_MAX)} {are(names)} at home on {record.new}; writers go on there")

    def _guard(self, record: Record) -> Outcome:
        self._words.tell_old(record)
        return self._writers.guard(record)


def _told(record: Record, one: Flip, way: str) -> AuditRow:
    words = f"by {record.by}, without its data"
    return AuditRow(one.since_ms, way, "home", one.topic, record.old, record.new, words, record.by, one.topic)
