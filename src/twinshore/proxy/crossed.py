"""What the store knows of topics that came by force: how far each had crossed, and what its producers had written."""

from __future__ import annotations

from collections.abc import Mapping

from twinshore.fleet import StoreError
from twinshore.fleet.sentences import counted, listed
from twinshore.proxy.core.leads import UNBOUNDED, Crossed, Lead, crossed_of
from twinshore.proxy.late_store import LateStore

NAMED_MAX = 5
NO_STORE = "there is no store, which the mirror tells who wrote what"


def ask(store: LateStore, link: str, topics: Mapping[str, Lead]) -> dict[str, Crossed]:
    """Of these topics, which `link` carried. StoreError where the store does not say it."""
    there = store.get()
    if there is None:
        raise StoreError(NO_STORE)
    since_ms = min(lead.torn.since_ms for lead in topics.values() if lead.torn is not None)
    known = there.crossings.of(link, {topic: lead.term for topic, lead in topics.items()}, since_ms)
    return {topic: crossed_of(topic, lead, known) for topic, lead in topics.items()}


def doubts(found: Mapping[str, Crossed]) -> str:
    """What may be written twice all the same; empty where nothing may."""
    unsure = {topic: sum(one.unsure.values()) for topic, one in found.items() if one.unsure}
    if not unsure:
        return ""
    names, offsets = listed(sorted(unsure), NAMED_MAX), sum(unsure.values())
    why = f"of the last {counted(offsets, 'offset')} it is not known who wrote them"
    if offsets >= UNBOUNDED:
        why = "so many producers wrote there that some were forgotten"
    return f"{names} came by force, and {why}: as much may be written twice"
