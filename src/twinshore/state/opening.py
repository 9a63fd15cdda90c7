"""Opens the settings' store: to read, which creates neither database nor table, or to change something. Another
version's tables stay unchanged: all of these raise StoreError.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import make_url

from twinshore.config.errors import ConfigError, StoreError, TwinshoreError
from twinshore.config.settings import Settings
from twinshore.state.database import describe_url
from twinshore.state.store import Store, empty_store, open_store, open_store_if_made

NO_MIRROR = "no mirror has run with these settings here"
RUN_MIRROR_HINT = "start one with `twinshore mirror run`, or name its settings with --settings"


def open_or_create(settings: Settings) -> Store:
    return open_store(settings.store.url, settings.store.password)


def open_if_exists(settings: Settings) -> Store | None:
    """Opens the store; None where file or tables are missing."""
    url = make_url(settings.store.url)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return None
    return open_store_if_made(settings.store.url, settings.store.password)


def open_existing(settings: Settings) -> Store:
    """Opens the store. Raises ConfigError without one."""
    store = open_if_exists(settings)
    if store is None:
        raise ConfigError(f"there is no store yet: {NO_MIRROR}", hint=RUN_MIRROR_HINT)
    return store


def open_for_report(settings: Settings, none: str = NO_MIRROR, hint: str = RUN_MIRROR_HINT) -> Store:
    """Opens the store. Raises ConfigError without one; `none` says what that means."""
    store = open_if_exists(settings)
    if store is None:
        raise ConfigError(f"there is no store at {settings.store.url}: {none}", hint=hint)
    return store


def open_responsive(settings: Settings, within_s: float) -> Store:
    """Opens a store that has taken a write. Raises StoreError on failure or timeout: a hanging attempt stays behind in
    a thread.
    """
    answer: queue.SimpleQueue[Store | TwinshoreError] = queue.SimpleQueue()
    late = threading.Event()

    def ask() -> None:
        try:
            store = open_existing(settings)
            try:
                store.leases.check_writable()
            except TwinshoreError:
                store.close()
                raise
            answer.put(store)
            if late.is_set():
                store.close()
        except TwinshoreError as error:
            answer.put(error)

    threading.Thread(target=ask, name="store", daemon=True).start()
    try:
        found = answer.get(timeout=within_s)
    except queue.Empty:
        late.set()
        place = describe_url(settings.store.url)
        raise StoreError(f"the store {place} has not answered within {within_s:g} s") from None
    if isinstance(found, TwinshoreError):
        raise found if isinstance(found, StoreError) else StoreError(found.message, hint=found.hint)
    return found


@contextlib.contextmanager
def open_or_temporary(settings: Settings) -> Iterator[Store]:
    """Opens the store; without one an empty temporary store."""
    store = open_if_exists(settings)
    if store is None:
        with empty_store(settings.store.url) as empty:
            yield empty
        return
    with store:
        yield store
