"""What must hold before links may run: `mirror run` and `mirror plan` both ask here, and refuse in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.fleet import ConfigError, Link
from twinshore.fleet.settings import Settings
from twinshore.links.rules import check_links
from twinshore.store import Store, open_store


def check_chosen(settings: Settings, links: Sequence[Link]) -> None:
    """ConfigError where there is nothing to run, or where links taken together could loop or collide."""
    if not links:
        raise ConfigError("no link to run", hint='name one in the settings: [links."east->west"]')
    # All links of the settings, though only some run here: another process may run the others.
    check_links(settings.links)


def open_writable(settings: Settings) -> Store:
    """The store; StoreError where it cannot be had, or only be read."""
    store = open_store(settings.store.url, settings.store.password)
    try:
        store.leases.check_writable()
    except BaseException:
        store.close()
        raise
    return store
