"""What a link admits and does not carry across: no proof of the rest speaks for it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from twinshore.fleet import Link
from twinshore.mirror.incidents.kinds import rests
from twinshore.proof.borders import PartitionLook
from twinshore.store.values import LedgerRow

NEVER = "the link admits it and has never carried it: does its mirror run?"
PAUSED = "it was paused before it was ever carried"


class Uncrossed(NamedTuple):
    """A topic, or one partition of it, that does not go on, and why."""

    topic: str
    partition: int
    sentence: str


def uncrossed_topics(
    link: Link, admitted: Iterable[str], known: Collection[str], rows: Iterable[LedgerRow]
) -> Iterator[Uncrossed]:
    """Of the source's topics that the link admits: those that it never began with, and those that it refuses. `known`
    have twins of the link's, `rows` are the open ones of the ledger."""
    refused: dict[str, list[LedgerRow]] = {}
    for row in rows:
        if row.incident.partition < 0 and rests(row.incident.kind, row.incident.policy):
            refused.setdefault(row.incident.topic, []).append(row)
    for name in sorted(admitted):
        if name in refused:
            yield Uncrossed(name, -1, f"the mirror refuses it: {'; '.join(map(_told, refused[name]))}")
        elif name not in known:
            yield Uncrossed(name, -1, PAUSED if link.control.pauses(name) else NEVER)


def uncrossed_partitions(looks: Iterable[PartitionLook], rows: Iterable[LedgerRow]) -> Iterator[Uncrossed]:
    """Of partitions that lack records: those that the mirror has stopped at their end, so that no row lies over what
    was compared."""
    stopped: dict[tuple[str, int], list[LedgerRow]] = {}
    for row in rows:
        if row.incident.partition >= 0 and row.incident.policy.stops:
            stopped.setdefault((row.incident.topic, row.incident.partition), []).append(row)
    for look in looks:
        over = {row.id for row in look.open_over}
        found = [row for row in stopped.get((look.named.topic, look.named.partition), ()) if row.id not in over]
        if found and look.reach < look.source_end:
            sentence = f"the mirror has stopped it: {'; '.join(map(_told, found))}"
            yield Uncrossed(look.named.topic, look.named.partition, sentence)


def _told(row: LedgerRow) -> str:
    return f"open row {row.id} of the ledger, {row.incident.kind}: {row.incident.sentence}"
