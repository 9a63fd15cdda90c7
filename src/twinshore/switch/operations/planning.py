"""Which topics would move, from where, what stands in the way, and what would be lost: looked at, and nothing done."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from twinshore.fleet import KafkaError, Link, Mode, Naming, RefusedError, TwinshoreError
from twinshore.fleet.operations import Plan
from twinshore.fleet.sentences import counted, have, listed
from twinshore.fleet.settings import Settings
from twinshore.fleet.terms import TERM_MAX
from twinshore.groups.goals import read_again
from twinshore.groups.offset_move import links_between, see_all
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.rights_requests import read_acls
from twinshore.links.filters import admits
from twinshore.links.homes import counterpart, pair_of
from twinshore.links.standing import standing
from twinshore.mirror.metrics.words import LAG_KIND, lag_of
from twinshore.mirror.pump.probing import may_write_markers
from twinshore.service.clock import wall_ms
from twinshore.service.ends import Ends
from twinshore.service.identity import recognise
from twinshore.store import Store, TwinRow
from twinshore.switch.deeds import DEEDS, DUTIES, Deed, Kind
from twinshore.switch.hands.carried import paused_of, stopped_of
from twinshore.switch.hands.claims import homes_of, taken
from twinshore.switch.hands.log_ends import answers, behind
from twinshore.switch.hands.places import may_be_torn
from twinshore.switch.operations.meaning import Switch, link_of, must_be_expressions
from twinshore.switch.operations.preview import Cramped, cramped, lacking, left_open, unheld, unready
from twinshore.switch.operations.taking_over import filled_anew, standing_on
from twinshore.switch.record import Moved, Record
from twinshore.switch.taking_over import halves, said, said_of_halves
from twinshore.switch.torn import of_transactions
from twinshore.switch.uncrossed import uncrossed
from twinshore.switch.write_rules import shuts_out

NAMED_MAX = 5
ASK_S = 5.0
GONE_S = 1.5  # for an old home of which an operator says that it does not answer


@dataclass(frozen=True, slots=True)
class DeedStep:
    """A deed of the switch."""

    deed: Deed

    def sentence(self, *, done: bool) -> str:
        return f"{self.deed}: {DUTIES[self.deed].does}" + (" (done)" if done else "")


@dataclass(frozen=True, slots=True)
class SwitchPlan(Plan[DeedStep]):
    """`record`: how the switch begins; None where it is refused. `back_topics`: what the link back must be given to
    carry, before the switch begins; empty where it carries them already. `takes_over`: switches of dead processes that
    have these topics, and are ended first. `alive`: the home that must be named
    to leave it by force: the old one answers all the same, or the topic is at home on a third cluster."""

    record: Record | None = None
    back_topics: tuple[str, ...] = ()
    takes_over: tuple[Record, ...] = ()
    alive: str = ""


def plan(asked: Switch, settings: Settings, store: Store, *, by: str = "", kept: str = "") -> SwitchPlan:
    """ConfigError where no topic is meant; what stands in the way is `refused`, in one sentence. `kept`: the cluster
    that keeps the record, where `store` holds no more than what that cluster says."""
    settings.cluster(asked.to)
    must_be_expressions(asked.topics)
    links = [one.link for one in standing(settings.links, store).values()]
    link, rows = link_of(asked, links, store)
    asked_for = {row.topic for row in rows}
    anew = filled_anew(link, store) if asked.kind is Kind.FORCED else ()
    left = [said_of_halves(one, asked_for) for one in anew if asked_for.intersection(halves(one))]
    topics = sorted(asked_for.difference(*map(halves, anew)))
    if not topics:
        hint = "`twinshore switch resume` ends it then"
        return SwitchPlan(refused=RefusedError(left[0].removeprefix("left out: "), hint=hint))
    back = counterpart(link, links)
    ours = [row for row in rows if row.topic in topics]
    shown = [*_shown(asked, link, ours, store, kept=bool(kept)), *left]
    with Ends(link, settings, patience_s=ASK_S, call_s=ASK_S) as ends:
        away = _away(asked, link, settings, ends)
        refused = _refused(asked, link, topics, store, away) or _unfit(asked, link, topics, store, ends, away)
        room = Cramped() if refused else cramped(ends.target, topics, settings)
        # Whoever has lost his home takes what room there is.
        refused = refused or (None if asked.kind is Kind.FORCED else room.refused())
        try:
            others = standing_on(link, topics, store, answers=not away) if asked.kind is Kind.FORCED else ()
        except RefusedError as error:
            refused = refused or error
        if refused:
            return SwitchPlan(shown=tuple(shown), refused=refused)
        shown += [said(one, topics) for one in others]
        moved = tuple(moved_of(topic, rows, link, store) for topic in topics)
        lag = 0 if asked.kind is Kind.FORCED else behind(ends.source, ends.target, moved)
        torn = tuple(may_be_torn(ends.target, link, topics)) if asked.kind is Kind.FORCED else ()
        unknown = tuple(_unknown(ends.target, link, topics, back)) if kept else ()
        open_to = () if asked.kind is Kind.FORCED else unheld(ends.source, topics)
        strange = tuple(_strange(link, topics, store)) if asked.kind is Kind.FORCED else ()
        later = (left_open(ends.source, topics, away),) if asked.kind is Kind.FORCED else ()
        about = _remarks(asked, link, lag, away, _elsewhere(link, topics, store))
        again = () if kept or asked.kind is Kind.FORCED else (_read_again(link, settings, store),)
        remarks = (*about, *filter(None, (room.words,)), *strange, *torn, *unknown, *open_to, *later, *again)
    record = _record(asked, link, moved, by, kept)
    untaken = () if kept else tuple(topic for topic in topics if back is None or not admits(back, topic))
    steps = tuple(DeedStep(deed) for deed in DEEDS[asked.kind])
    alive = link.source if asked.kind is Kind.FORCED and not away else ""
    alive = next(iter(_elsewhere(link, topics, store).values()), alive) if asked.kind is Kind.FORCED else alive
    return SwitchPlan(steps, tuple(shown), remarks, record=record, back_topics=untaken, takes_over=others, alive=alive)


def _record(asked: Switch, link: Link, moved: tuple[Moved, ...], by: str, kept: str) -> Record:
    return Record(
        id=secrets.token_hex(16),
        kind=asked.kind,
        old=link.source,
        new=link.target,
        link=link.name,
        back=f"{link.target}->{link.source}",
        topics=moved,
        by=by,
        begun_ms=wall_ms(),
        hold_s_max=asked.hold_s,
        deed=DEEDS[asked.kind][0],
        kept=kept,
    )


def _read_again(link: Link, settings: Settings, store: Store) -> str:
    """Of the groups of both clusters; the plan stands also where one says nothing of them."""
    try:
        links = links_between(settings, store, link.source, link.target)
        seen = see_all(links, settings, store, ".*", link.target, stable=False)
    except KafkaError as error:
        return f"where groups stand is not known: {error.message}"
    return read_again(seen.values(), link.source, link.target)


def _away(asked: Switch, link: Link, settings: Settings, ends: Ends) -> str:
    """Why the old home cannot be asked now; empty where it can."""
    if asked.kind is not Kind.FORCED:
        return answers(ends.source)
    with closing(KafkaCluster(settings.cluster(link.source), patience_s=GONE_S, call_s=GONE_S)) as brief:
        return answers(brief)


def adopting(link: Link, done: str) -> RefusedError:
    """Why exact twins of a link that may adopt topics, which are mapped then, are not `done`."""
    return RefusedError(
        f'{link.name} adopts topics that hold data already (mode = "mapped"), and twins of such a link are not {done}',
        hint=f"`twinshore link set '{link.name}' 'mode=\"exact\"'` ends that; each twin stays exact or mapped as it is",
    )


def _refused(asked: Switch, link: Link, topics: Sequence[str], store: Store, away: str) -> TwinshoreError | None:
    """What the store tells that stands in the way."""
    if link.naming is not Naming.SAME:
        return RefusedError(
            f"{link.name} gives its twins other names: their topics are written on both sides",
            hint="on such links single producers and groups move, by their own addresses",
        )
    if link.queue.fresh:
        return RefusedError(
            f"the queue of {link.name} is fresh: its twins lack what was dropped, and are not switched",
            hint='give the queue policy = "keep", and let exact twins begin: docs/broadcast.md',
        )
    mapped = sorted({topic for topic, _ in store.extents.reached(link.name)} & set(topics))
    if mapped:
        return RefusedError(f"mapped twins have offsets of their own and are not switched: {listed(mapped, NAMED_MAX)}")
    if link.mode is Mode.MAPPED:
        return adopting(link, "switched")
    homes = homes_of(store, link, topics)
    if asked.kind is not Kind.FORCED and (moved := _elsewhere(link, topics, store)):
        topic, home = next(iter(moved.items()))
        return RefusedError(
            f"topic {topic} is at home on {home}, and not on {link.source}",
            hint=f"switch it from {home}, along a link `{home}->{asked.to}`",
        )
    if worn := [topic for topic in topics if topic in homes and homes[topic].term >= TERM_MAX]:
        return RefusedError(
            f"{listed(worn, NAMED_MAX)} {have(worn)} changed homes {TERM_MAX:,} times: brokers could not tell old "
            "writers from new ones any more",
            hint="move what is in it to a topic of another name",
        )
    if asked.kind is Kind.FORCED:
        return None
    if away:
        return RefusedError(
            f"{link.source} does not answer ({away}): a planned switch needs both clusters",
            hint="`--force` moves the topics with what has crossed, and says what has not",
        )
    if paused := paused_of(link, topics, store):
        return RefusedError(
            f"{link.name} is paused for {listed(paused, NAMED_MAX)} by operators: the twins would never be level",
            hint="`twinshore link resume` lets it go on",
        )
    if stopped := stopped_of(link, topics, store):
        return RefusedError(
            f"{link.name} has stopped with {listed(stopped, NAMED_MAX)}", hint="`twinshore status` says why"
        )
    return taken(store, pair_of(link), topics)


def _unfit(
    asked: Switch, link: Link, topics: Sequence[str], store: Store, ends: Ends, away: str
) -> TwinshoreError | None:
    """What the clusters tell that stands in the way."""
    if not away:
        recognise(link, store, ends.source, ends.target)
    try:
        if not may_write_markers(ends.target):
            return RefusedError(
                f"late requests of {link.name} could not be shut out on {link.target}",
                hint=f"the mirror's user needs Alter or ClusterAction on cluster {link.target}",
            )
        if asked.kind is Kind.FORCED:
            return unready(ends.target, topics)
        return lacking(ends.source, ends.target, topics)
    except KafkaError as error:
        return RefusedError(f"what the switch needs to know is not told: {error.message}")


def moved_of(topic: str, rows: Sequence[TwinRow], link: Link, store: Store) -> Moved:
    """The topic as a switch begins with it, by its twin's rows."""
    ours = [row for row in rows if row.topic == topic]
    home = homes_of(store, link, [topic]).get(topic)
    return Moved(
        topic=topic,
        old_id=ours[0].source_topic_id,
        new_id=ours[0].target_topic_id,
        term=home.term if home else 0,
        partitions=len(ours),
    )


def _shown(asked: Switch, link: Link, rows: Sequence[TwinRow], store: Store, *, kept: bool) -> Iterator[str]:
    """`kept`: without the store, so that nobody knows how far anything has crossed."""
    topics = sorted({row.topic for row in rows})
    count = counted(len(topics), "topic")
    yield f"{count} would be at home on {link.target}, and no more on {link.source}: {listed(topics, NAMED_MAX)}"
    if kept:
        yield f"how much of {link.source} had not crossed is not known: the store alone knows how far it was seen"
    elif asked.kind is Kind.FORCED:
        positions = [at for at in store.receipts.positions(link.name) if at.topic in topics]
        every = {row.topic for row in store.twins.of(link.name)} == set(topics)
        word = lag_of(store.memories.of(link.name, LAG_KIND))
        missing = uncrossed(Counter(row.topic for row in rows), positions, word, every=every)
        yield from missing.sentences(link.source, len(topics), wall_ms())


def _elsewhere(link: Link, topics: Sequence[str], store: Store) -> dict[str, str]:
    """Which of these topics a switch between other clusters has moved away from the link's source, and to where."""
    homes = homes_of(store, link, topics)
    return {topic: row.home for topic, row in homes.items() if row.home not in (link.source, link.target)}


def _remarks(asked: Switch, link: Link, lag: int, away: str, elsewhere: Mapping[str, str]) -> Iterator[str]:
    if asked.kind is Kind.FORCED:
        for topic, home in elsewhere.items():
            yield f"topic {topic} is at home on {home}: what was written there since does not come to {link.target}"
    if asked.kind is Kind.FORCED and not away:
        yield f"{link.source} answers: a planned switch would lose nothing"
    if asked.kind is Kind.FORCED:
        yield of_transactions(link.target)
    else:
        behind_now = f"the twins are {counted(lag, 'offset')} behind now"
        wait, turns = ("would wait", "would turn") if asked.kind is Kind.DRILL else ("wait", "turns")
        yield f"{behind_now}; where writers {wait} for {asked.hold_s:g} s, the switch {turns} back"


def _strange(link: Link, topics: Sequence[str], store: Store) -> Iterator[str]:
    """A twin that had stopped may hold what its home never had."""
    if paused := paused_of(link, topics, store):
        yield f"{link.name} was paused for {listed(paused, NAMED_MAX)} by operators: what came since has not crossed"
    if left := [topic for topic in topics if not admits(link, topic)]:
        yield f"{link.name} carries {listed(left, NAMED_MAX)} no more: what came since has not crossed"
    if stopped := stopped_of(link, topics, store):
        yield (
            f"{link.name} had stopped with {listed(stopped, NAMED_MAX)}: whatever {link.target} holds there counts "
            "from then on, also what was not carried; `twinshore status` says why it stopped"
        )


def _unknown(new: KafkaCluster, link: Link, topics: Sequence[str], back: Link | None) -> Iterator[str]:
    """What the new home cannot say, and what becomes of it."""
    yield (
        "not known without the store: what operators said of links since the settings were written, which partitions "
        "had stopped and why, and what of settings and rights was held back from the twins. `twinshore switch resume` "
        "gives these once the store answers"
    )
    if back is None or any(not admits(back, topic) for topic in topics):
        yield (
            f"no link of the settings carries them from {link.target} back to {link.source}: add one once the store "
            "answers"
        )
    denied = sorted({acl.name for acl in read_acls(new) or () if shuts_out(acl, topics)})
    if denied:
        yield f"{new.name} denies Write on {listed(denied, NAMED_MAX)}: take such rules away by hand, or nobody writes"
