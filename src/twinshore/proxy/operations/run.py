"""Serving clients of the clusters of the settings."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.fleet.settings import Settings
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.serving import chosen
from twinshore.proxy.serving import serve as until_ended
from twinshore.service.open_files import allow_most


def serve(settings: Settings, log: Callable[[str], None]) -> None:
    """Until Ctrl-C or SIGTERM. It begins without a store as well, and takes up one that is made later."""
    chosen(settings)
    allow_most()  # two for each client
    store = LateStore(settings, log)
    try:
        until_ended(settings, store, log)
    finally:
        store.close()
