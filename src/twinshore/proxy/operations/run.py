"""Serving clients of the clusters of the settings."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet.settings import Settings
from twinshore.proxy.serving import chosen
from twinshore.proxy.serving import serve as until_ended
from twinshore.store.opening import open_if_there


def serve(settings: Settings, log: Callable[[str], None]) -> None:
    """Until Ctrl-C or SIGTERM. Without a store, each topic is led to the first cluster that has it."""
    chosen(settings)
    store = open_if_there(settings)
    if store is None:
        log(f"there is no store at {settings.store.url}: each topic is led to the first cluster that has it")
        until_ended(settings, None, log)
        return
    with store:
        until_ended(settings, store, log)
