"""Serving pushes from the store of the settings."""

from __future__ import annotations

from collections.abc import Callable

from twinshore.centre.serving import serve as until_ended
from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections import push
from twinshore.store.opening import open_or_make


def serve(settings: Settings, log: Callable[[str], None]) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP."""
    with open_or_make(settings) as store:
        until_ended(settings.of(push.SECTION), store, log)
