"""What a switch has to itself in the store.

Topics are claimed so that no other switch moves them, let go by the mirror that carries them, carried again where the
switch turns back, and given back at its end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twinshore.fleet import Link, RefusedError
from twinshore.fleet.sentences import are, listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.links.homes import BETWEEN, of_topic, pair_of
from twinshore.service.clock import wall_ms
from twinshore.store import Asked, HomeRow, Store, TopicInSwitch
from twinshore.switch.decision import Cannot, Done, Outcome, Wait
from twinshore.switch.hands.debts import unsaid
from twinshore.switch.record import Record

NAMED_MAX = 5
ID_SHOWN = 8


def claim(store: Store, record: Record, names: Collection[str] | None = None) -> tuple[TopicInSwitch, ...]:
    """Claims the topics, or what else has these `names`; the claims of other switches that stand there already."""
    pair, now_ms = pair_of(Link(record.old, record.new)), wall_ms()
    rows = [
        TopicInSwitch(pair, name, record.id, record.carrier, Asked.ANNOUNCED, now_ms)
        for name in (record.names() if names is None else names)
    ]
    ours = store.switching.begin(rows)
    return tuple(row for row in {*ours, *_near(store, pair, [row.topic for row in rows])} if row.switch_id != record.id)


def _near(store: Store, pair: str, names: Collection[str]) -> list[TopicInSwitch]:
    """What is claimed of these topics by switches from or to either cluster of the pair: a claim is the topic's."""
    clusters = set(pair.split(BETWEEN))
    found = store.switching.everywhere(names)
    return [row for row in found if clusters.intersection(row.pair.split(BETWEEN))]


def homes_of(store: Store, link: Link, topics: Collection[str]) -> dict[str, HomeRow]:
    """Where these topics are at home, whichever clusters the last switch was between."""
    rows: dict[str, list[HomeRow]] = {}
    for row in store.homes.everywhere(topics):
        rows.setdefault(row.topic, []).append(row)
    found = {topic: of_topic(pair_of(link), some) for topic, some in rows.items()}
    return {topic: row for topic, row in found.items() if row is not None}


def busy(others: Collection[TopicInSwitch]) -> str:
    """Which topic another switch has; empty where none."""
    if not others:
        return ""
    topics = listed([row.topic for row in others], NAMED_MAX)
    return f"topic {topics} is in another switch already ({next(iter(others)).switch_id[:ID_SHOWN]})"


def taken(store: Store, pair: str, names: Collection[str]) -> RefusedError | None:
    """What a plan for these topics, or what else is claimed by these names, is refused with where a switch has them."""
    rows = _near(store, pair, names)
    if not rows:
        return None
    held = listed([row.topic for row in rows], NAMED_MAX)
    return RefusedError(
        f"{held} {are(rows)} in switch {rows[0].switch_id[:ID_SHOWN]} already",
        hint="`twinshore switch status` shows it; the mirror ends one whose process is gone while it holds writers",
    )


def let_go(store: Store, record: Record) -> Outcome:
    """Done once the mirror says of each topic that it sends nothing more."""
    store.switching.ask(record.id, Asked.LET_GO, wall_ms())
    rows = [row for row in store.switching.of_link(record.carrier) if row.switch_id == record.id]
    if len(rows) < len(record.topics):
        return Cannot("the topics are not in this switch any more: somebody else has ended it")
    if waits := [row.topic for row in rows if not row.let_go_ms]:
        return Wait(f"the mirror of {record.carrier} still carries {listed(waits, NAMED_MAX)}")
    return Done(record)


def carry_again(store: Store, record: Record) -> Outcome:
    """The mirror may go on with the topics; they stay claimed."""
    store.switching.ask(record.id, Asked.ANNOUNCED, wall_ms())
    return Done(record)


def give_back(store: Store, record: Record, clusters: Sequence[KafkaCluster], now_ms: int) -> Done:
    """The claims in the store, and those that these clusters keep, are anybody's. `now_ms`: by the clock of the
    record."""
    store.switching.end(record.id)  # first: a home that is silent must not keep the next switch waiting
    return Done(record, unsaid(record, clusters, store, now_ms))
