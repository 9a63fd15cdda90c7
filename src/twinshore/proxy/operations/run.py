"""Serving clients of the clusters of the settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twinshore.fleet.settings import Settings
from twinshore.fleet.settings.sections.proxy import SECTION
from twinshore.proxy.late_store import LateStore
from twinshore.proxy.serving import chosen
from twinshore.proxy.serving import serve as until_ended
from twinshore.proxy.several.keeper import keep
from twinshore.proxy.several.part import Part, Word
from twinshore.service.open_files import allow_most


def serve(settings: Settings, log: Callable[[str], None], processes: int = 0) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP. It begins without a store as well, and takes up one that is made later.
    `processes`: so many, in place of what the settings say, where it is not 0."""
    chosen(settings)
    count = processes or settings.of(SECTION).processes
    if count > 1:
        keep(settings, count, log)
    else:
        _serve(settings, log, None)


def serve_part(settings: Settings, part: Part) -> None:
    """The same, as one of several processes."""
    _serve(settings, partial(part.tell, Word.SAID), part)


def _serve(settings: Settings, log: Callable[[str], None], part: Part | None) -> None:
    allow_most()  # two for each client
    store = LateStore(settings, log)
    try:
        until_ended(settings, store, log, part)
    finally:
        store.close()
