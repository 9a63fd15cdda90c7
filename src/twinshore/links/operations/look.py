"""Which links there are, what settings say otherwise, and which were removed."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet import StoreError, StoreVersionError
from twinshore.fleet.sentences import counted
from twinshore.fleet.settings import Settings
from twinshore.links.known import known
from twinshore.links.seeds import AboutLink
from twinshore.store import LinkRow, LinkState, Store
from twinshore.store.opening import open_if_there

__all__ = ["AboutLink", "about_links", "with_links"]
SHOWN_MS = 24 * 3_600_000  # so long a removed link is named that left nothing


def with_links(settings: Settings, log: Callable[[str], None]) -> Settings:
    """The settings with the links that there are. `log` hears where the store cannot say it; they are the settings'
    then. StoreVersionError where it has another version's tables."""
    try:
        store = open_if_there(settings)
        if store is None:
            return settings
        with store:
            return settings.with_links(known(settings, store).links)
    except StoreVersionError:
        raise
    except StoreError as error:
        log(f"links are as the settings have them: {error.message}")
        return settings


def about_links(settings: Settings, store: Store, *, now_ms: int) -> list[AboutLink]:
    """What settings say otherwise than the store, and links that were removed: while twins of theirs stay, or for a
    day."""
    found = known(settings, store)
    gone = {row.link: row for row in found.removed}
    others = {(row.link, row.revision) for row in found.rows if row.state is LinkState.KEPT}
    said = [one for one in found.differences if one.link not in gone]
    for row in gone.values():
        twins = len({one.topic for one in store.twins.of(row.link)})
        if twins or now_ms - row.changed_ms < SHOWN_MS or row.link in settings.link_sections:
            source, _, target = row.link.partition("->")
            turned = (other := f"{target}->{source}", row.revision) in others
            went = f"turned into {other}" if turned else "removed"
            said.append(AboutLink(row.link, _gone(row, went, twins, named=row.link in settings.link_sections)))
    return sorted(said, key=lambda one: one.link)


def _gone(row: LinkRow, went: str, twins: int, *, named: bool) -> str:
    target = row.link.partition("->")[2]
    stays = f"; what it wrote stays on {target}: {counted(twins, 'twin')}" if twins else ""
    return f"was {went} by {row.changed_by}{stays}{'; the settings still name it' if named else ''}"
