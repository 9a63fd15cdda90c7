"""A switch run to its end, gone on with, or turned back, whoever began it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from twinshore.fleet import ConfigError, Link, Naming, RefusedError
from twinshore.fleet.settings import Settings
from twinshore.links.operations.change import Add, Set
from twinshore.links.operations.change import act as change_links
from twinshore.links.operations.change import plan as plan_links
from twinshore.links.standing import standing
from twinshore.service.clock import steady_s, wall_ms
from twinshore.service.ends import Ends
from twinshore.store import Store, SwitchRow
from twinshore.switch.alone import alone
from twinshore.switch.decision import begin, turn_back
from twinshore.switch.deeds import Kind
from twinshore.switch.failback import Failback
from twinshore.switch.hands.group_alone import links_between
from twinshore.switch.hands.words import ClusterWords
from twinshore.switch.hands.writers import Writers
from twinshore.switch.one_group import OneGroup
from twinshore.switch.operations.planning import SwitchPlan
from twinshore.switch.operations.showing import Shown, one_switch
from twinshore.switch.rebuilding import Rebuild
from twinshore.switch.record import Record
from twinshore.switch.runner import anew, run
from twinshore.switch.work import Work

CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and how he is told. `stop` turns the switch back as far as it can."""

    by: str
    tell: Callable[[str], None]
    stop: threading.Event


def run_switch(planned: SwitchPlan, settings: Settings, store: Store, asking: Asking) -> Shown:
    """The switch as it ended; the link back is made first, where it is lacking."""
    if planned.record is None:
        raise planned.refused or ConfigError("nothing is to be switched")
    record = planned.record
    if planned.back_topics and record.kind is not Kind.DRILL:
        _give_way_back(record, planned.back_topics, settings, store, asking)
    return _go_on(begin(record, wall_ms()), settings, store, asking)


def resume(asked: str, settings: Settings, store: Store, asking: Asking) -> Shown:
    """Goes on with a switch whose process is no more."""
    record = one_switch(store, asked, open_only=True).record
    return _go_on(anew(record, asking.by, wall_ms()), settings, store, asking, record.to_json())


def roll_back(asked: str, settings: Settings, store: Store, asking: Asking) -> Shown:
    """Turns a switch back whose process is no more; RefusedError behind its point of no return."""
    record = one_switch(store, asked, open_only=True).record
    if record.committed:
        raise RefusedError(
            f"switch {record.id[:8]} is past its point of no return ({record.deed}): it can only go on",
            hint="`twinshore switch resume` ends it; then switch the topics the other way",
        )
    back = turn_back(anew(record, asking.by, wall_ms()), f"{asking.by} turned it back", wall_ms())
    return _go_on(back, settings, store, asking, record.to_json())


def _go_on(record: Record, settings: Settings, store: Store, asking: Asking, seen: str = "") -> Shown:
    """`seen`: the record as it was read before this process had the switch to itself."""
    links = {one.link.name: one.link for one in standing(settings.links, store).values()}
    link = links.get(record.link) or Link(record.old, record.new)
    back = links.get(record.back) or Link(record.new, record.old)
    with (
        alone(f"switch {record.id}", store, asking.by) as lease,
        Ends(link, settings, client_id="twinshore-switch", patience_s=CALL_S, call_s=CALL_S) as ends,
    ):
        kept = store.switches.of(record.id)
        if kept is not None and kept.record != seen:
            raise RefusedError(
                f"switch {record.id[:8]} has gone on meanwhile: it is {kept.state}",
                hint="look at it with `twinshore switch status`, and try again",
            )
        words = ClusterWords(ends.source, ends.target, time.monotonic)
        rights = Writers(ends.source, ends.target, link, back, store)
        work: Work | Failback | Rebuild | OneGroup
        if record.kind is Kind.REBUILD:
            work = Rebuild(back, store, ends.source, ends.target, settings.mirror.lease_s)
        elif record.kind is Kind.GROUP:
            work = OneGroup(links_between(settings, store, record.old, record.new), settings, store)
        elif record.kind is Kind.FAILBACK:
            work = Failback(link, back, store, ends.source, ends.target, words, rights)
        else:
            work = Work(link, back, settings, store, ends.source, ends.target, words, rights, asking.tell)

        began = lease.row()  # a lease that is lost and taken again is another one

        def save(now: Record) -> None:
            if began is None or not store.switches.save(_row(now), began):
                raise RefusedError(
                    f"this process has lost switch {now.id[:8]}: its lease ran out, or somebody else goes on with it",
                    hint="`twinshore switch status` shows it; `switch resume` goes on",
                )

        # A clock that somebody sets meanwhile must not make a hold look long or short.
        begun_ms, begun_s = wall_ms(), steady_s()
        ended = run(
            record,
            work.once,
            save,
            now_ms=lambda: begun_ms + int((steady_s() - begun_s) * 1000),
            tell=asking.tell,
            stop=asking.stop,
        )
    return Shown(ended.id, ended)


def _give_way_back(record: Record, topics: tuple[str, ...], settings: Settings, store: Store, asking: Asking) -> None:
    """The link back carries what it is given by name, and nothing else that is new on the new home."""
    links = {one.link.name: one.link for one in standing(settings.links, store).values()}
    there = links.get(record.back)
    if there is not None and there.naming is not Naming.SAME:
        raise RefusedError(f"{record.back} gives its twins other names: it cannot carry these topics back")
    names = sorted({*(_literal(topic) for topic in topics), *(there.topics if there else ())})
    value = f"topics={json.dumps(names)}"
    asked = Set(record.back, [value]) if there else Add(record.back, [value])
    planned = plan_links(asked, settings, store, by=asking.by)
    if planned.refused:
        raise planned.refused
    for step in change_links(planned, settings, store, by=asking.by):
        asking.tell(step.sentence(done=True))


def _literal(topic: str) -> str:
    """The expression that means this topic alone."""
    return topic.replace(".", "\\.")


def _row(record: Record) -> SwitchRow:
    now_ms = wall_ms()
    return SwitchRow(
        record.id,
        record.kind,
        record.old,
        record.new,
        record.state,
        record.to_json(),
        record.by,
        record.begun_ms,
        now_ms,
        now_ms if record.ended else None,
    )
