"""A switch run to its end, gone on with, or turned back, whoever began it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from twinshore.fleet import ConfigError, Link, Naming, RefusedError, StoreError
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.switch import SECTION as SWITCH
from twinshore.groups.offset_move import links_between
from twinshore.homes.home_notes import HomeNotes
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.kept_records import is_kept
from twinshore.links.operations.change import Add, Set
from twinshore.links.operations.change import act as change_links
from twinshore.links.operations.change import plan as plan_links
from twinshore.links.standing import standing
from twinshore.service.clock import steady_s, wall_ms
from twinshore.service.ends import Ends
from twinshore.store import Store
from twinshore.switch.alone import alone
from twinshore.switch.bare import Bare
from twinshore.switch.decision import begin, turn_back
from twinshore.switch.deeds import Kind
from twinshore.switch.failback import Failback
from twinshore.switch.hands.commands import Commands
from twinshore.switch.hands.words import ClusterWords
from twinshore.switch.hands.writers import Writers
from twinshore.switch.one_group import OneGroup
from twinshore.switch.operations.kept import begun_anew, brought, take_up
from twinshore.switch.operations.meaning import literal
from twinshore.switch.operations.planning import SwitchPlan
from twinshore.switch.operations.showing import Shown, one_switch
from twinshore.switch.operations.taking_over import take_over
from twinshore.switch.rebuilding import Rebuild
from twinshore.switch.record import Record
from twinshore.switch.runner import anew, announced_behind, run
from twinshore.switch.taking_over import said
from twinshore.switch.work import Work

CALL_S = 3.0


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and how he is told. `stop` turns the switch back as far as it can. `before_hold` is called once, right
    before the switch is announced; `behind_flip`, which raises nothing, once the topics are at home elsewhere."""

    by: str
    tell: Callable[[str], None]
    stop: threading.Event
    before_hold: Callable[[], None] = lambda: None
    behind_flip: Callable[[], None] = lambda: None


def run_switch(planned: SwitchPlan, settings: Settings, store: Store, asking: Asking) -> Shown:
    """The switch as it ended; the link back is made first, where it is lacking."""
    if planned.record is None:
        raise planned.refused or ConfigError("nothing is to be switched")
    record = planned.record
    if planned.takes_over:
        with closing(KafkaCluster(settings.cluster(record.new), patience_s=CALL_S, call_s=CALL_S)) as new:
            for other in planned.takes_over:
                take_over(other, record.names(), new, store, asking.by)
                asking.tell(said(other, record.names()))
    if planned.back_topics and record.kind is not Kind.DRILL:
        have_carried(record.back, planned.back_topics, settings, store, asking)
    return _go_on(begin(record, wall_ms()), settings, store, asking)


def must_take_writes(store: Store) -> None:
    """RefusedError where the store may only be read: a switch could not go on after its first deed."""
    try:
        store.leases.check_writable()
    except StoreError as error:
        raise RefusedError(f"nothing was begun: {error.message}", hint=error.hint) from error


def resume(asked: str, settings: Settings, store: Store, asking: Asking) -> Shown:
    """Goes on with a switch whose process is no more, also with one that was made while the store was dead."""
    return _again(asked, settings, store, asking, lambda record: anew(record, asking.by, wall_ms()))


def roll_back(asked: str, settings: Settings, store: Store, asking: Asking) -> Shown:
    """Turns a switch back whose process is no more; RefusedError past its point of no return."""

    def back(record: Record) -> Record:
        if record.committed:
            raise RefusedError(
                f"switch {record.id[:8]} is past its point of no return ({record.deed}): it can only go on",
                hint="`twinshore switch resume` ends it; then switch the topics the other way",
            )
        return turn_back(anew(record, asking.by, wall_ms()), f"{asking.by} turned it back", wall_ms())

    return _again(asked, settings, store, asking, back)


def _again(asked: str, settings: Settings, store: Store, asking: Asking, onward: Callable[[Record], Record]) -> Shown:
    """`onward`: how whoever takes the switch over begins; it may refuse."""
    take_up(settings, store, asking.tell)
    row = store.switches.of(one_switch(store, asked, open_only=True).id)
    assert row is not None
    record = Record.from_json(row.record)
    onward(record)
    return _go_on(record, settings, store, asking, (row.record, onward))


def _go_on(
    record: Record,
    settings: Settings,
    store: Store,
    asking: Asking,
    over: tuple[str, Callable[[Record], Record]] | None = None,
) -> Shown:
    """`over`: of a switch that is taken over, its row's record as it was read before this process had the switch to
    itself, and how it is gone on with."""
    link, back = both_ways(record, settings, store)
    with (
        alone(f"switch {record.id}", store, asking.by) as lease,
        Ends(link, settings, client_id="twinshore-switch", patience_s=CALL_S, call_s=CALL_S) as ends,
    ):
        kept = store.switches.of(record.id)
        stale = kept is not None and (over is None or kept.record != over[0])
        if kept is not None and stale and not (record.kept and is_kept(kept)):
            raise RefusedError(
                f"switch {record.id[:8]} has gone on meanwhile: it is {kept.state}",
                hint="look at it with `twinshore switch status`, and try again",
            )
        began = lease.row()  # a lease that is lost and taken again is another one

        def save(now: Record) -> None:
            if began is None or not store.switches.save(now.row(wall_ms()), began):
                raise RefusedError(
                    f"this process has lost switch {now.id[:8]}: its lease ran out, or somebody else goes on with it",
                    hint="`twinshore switch status` shows it; `switch resume` goes on",
                )

        was_kept = bool(record.kept)
        if was_kept:
            record = brought(record, HomeNotes(ends.target), store, save)
        record = over[1](record) if over else record
        record = begun_anew(record) if was_kept else record
        now_ms = steady_clock()
        work = hands(record, link, back, settings, store, ends, asking, now_ms)
        once = announced_behind(asking.before_hold, work.once)
        ended = run(
            record, once, save, now_ms=now_ms, tell=asking.tell, stop=asking.stop, behind_flip=asking.behind_flip
        )
    return Shown(ended.id, ended)


def both_ways(record: Record, settings: Settings, store: Store) -> tuple[Link, Link]:
    """The link that carried the topics, and the one that carries them back."""
    links = {one.link.name: one.link for one in standing(settings.links, store).values()}
    return links.get(record.link) or Link(record.old, record.new), links.get(record.back) or Link(
        record.new, record.old
    )


def hands(
    record: Record,
    link: Link,
    back: Link,
    settings: Settings,
    store: Store,
    ends: Ends,
    asking: Asking,
    now_ms: Callable[[], int],
) -> Commands:
    """Who does the deeds of this switch, with the operator's commands among them; `now_ms` is the clock it runs by."""
    does: Work | Failback | Rebuild | OneGroup
    if record.kind is Kind.REBUILD:
        does = Rebuild(back, settings, store, ends.source, ends.target, now_ms)
    elif record.kind is Kind.GROUP:
        does = OneGroup(links_between(settings, store, record.old, record.new), settings, store, now_ms)
    else:
        words = ClusterWords(ends.source, ends.target, time.monotonic)
        writers = Writers(ends.source, ends.target, link, back, store)
        if record.kind in (Kind.FAILBACK, Kind.MAPPED):
            does = Failback(link, back, settings, store, ends.source, ends.target, words, writers, now_ms)
        else:
            whose = Bare if record.kind is Kind.BARE else Work
            does = whose(link, back, settings, store, ends.source, ends.target, words, writers, asking.tell, now_ms)
    return Commands(settings.of(SWITCH), does)


def steady_clock() -> Callable[[], int]:
    """A clock that somebody sets meanwhile must not make a hold look long or short."""
    begun_ms, begun_s = wall_ms(), steady_s()
    return lambda: begun_ms + int((steady_s() - begun_s) * 1000)


def have_carried(name: str, topics: Sequence[str], settings: Settings, store: Store, asking: Asking) -> None:
    """The link carries these topics too, by their names, and nothing else that is new; it is made where there is
    none."""
    links = {one.link.name: one.link for one in standing(settings.links, store).values()}
    there = links.get(name)
    if there is not None and there.naming is not Naming.SAME:
        raise RefusedError(f"{name} gives its twins other names: it cannot carry these topics")
    names = sorted({*(literal(topic) for topic in topics), *(there.topics if there else ())})
    value = f"topics={json.dumps(names)}"
    planned = plan_links(Set(name, [value]) if there else Add(name, [value]), settings, store, by=asking.by)
    if planned.refused:
        raise planned.refused
    for step in change_links(planned, settings, store, by=asking.by):
        asking.tell(step.sentence(done=True))
