"""What the store says of a link's topics: which are paused, which have stopped, which a switch has left to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twinshore.fleet import Link
from twinshore.fleet.incidents import Effect, IncidentKind
from twinshore.fleet.terms import FIRST_TERM
from twinshore.links.homes import pair_of
from twinshore.links.in_force import in_force
from twinshore.store import Store
from twinshore.store.values import PartitionState
from twinshore.switch.old_homes import left_to


def paused_of(link: Link, topics: Sequence[str], store: Store) -> list[str]:
    """Topics of these that operators have paused, alone or with their link."""
    control = in_force(link, store.controls.of(link.name)).link.control
    return [topic for topic in topics if control.pauses(topic)]


def filled_in_part(link: Link) -> str:
    """What is to be known before a twin of this link is deleted and filled again; empty where it gets all."""
    if not link.queue.fresh:
        return ""
    return f"the queue of {link.name} is fresh: what is too old for it is deleted, and not filled again"


def left_to_link(link: Link, store: Store) -> tuple[str, ...]:
    """The topics that a switch has left to the link, as the store says now."""
    pair = pair_of(link)
    homes = store.homes.of(pair)
    if not any(row.home == link.source and row.term > FIRST_TERM for row in homes.values()):
        return ()
    in_switch = {row.topic for row in store.switching.of(pair)}
    return left_to(link, homes, store.twins.of(link.name), in_switch)


def resting(link: Link, topics: Sequence[str], store: Store) -> dict[str, IncidentKind | None]:
    """Partitions that rest, and whole topics: by the ledger, which says why, or else by the last receipt."""
    rows = [row.incident for row in store.ledger.rows(link.name, open_only=True)]
    told: dict[str, IncidentKind | None] = {
        f"{one.topic}-{one.partition}" if one.partition >= 0 else one.topic: one.kind
        for one in rows
        if one.topic in topics and (one.policy.stops or one.policy.effect is Effect.TOPIC)
    }
    placed = store.receipts.positions(link.name)
    rest = {f"{at.topic}-{at.partition}" for at in placed if at.topic in topics and at.state != PartitionState.FLOWING}
    return dict(sorted((dict.fromkeys(rest) | told).items()))


def stopped_of(link: Link, topics: Sequence[str], store: Store) -> list[str]:
    """What rests, in words."""
    return in_words(resting(link, topics, store))


def in_words(rest: Mapping[str, IncidentKind | None]) -> list[str]:
    return [f"{name} ({kind})" if kind else name for name, kind in rest.items()]
