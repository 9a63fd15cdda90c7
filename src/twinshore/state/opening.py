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

from twinshore.config.errors import CodedError, ConfigError, StoreError, TwinshoreError
from twinshore.config.settings import Settings
from twinshore.state.database import describe_url
from twinshore.state.store import Store, empty_store, open_store, open_store_if_made


def open_or_create(settings: Settings) -> Store:
    return open_store(settings.store.url, settings.store.password)


def open_if_exists(settings: Settings) -> Store | None:
    """Opens the store; None where file or tables are missing."""
    url = make_url(settings.store.url)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        return None
    return open_store_if_made(settings.store.url, settings.store.password)


def open_existing(settings: Settings, none: str = "state.no-store") -> Store:
    """Opens the store. Raises ConfigError without one, with the code `none`."""
    store = open_if_exists(settings)
    if store is None:
        raise ConfigError(none, place=describe_url(settings.store.url))
    return store


def open_responsive(settings: Settings, within_s: float) -> Store:
    """Opens a store that has taken a write. Raises StoreError on failure or timeout: a hanging attempt stays behind in
    a thread.
    """
    answer: queue.SimpleQueue[Store | CodedError] = queue.SimpleQueue()
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
        except CodedError as error:
            answer.put(error)

    threading.Thread(target=ask, name="store", daemon=True).start()
    try:
        found = answer.get(timeout=within_s)
    except queue.Empty:
        late.set()
        place = describe_url(settings.store.url)
        raise StoreError("state.no-answer", place=place, seconds=within_s) from None
    if isinstance(found, CodedError):
        raise found if isinstance(found, StoreError) else StoreError(found.code, hint=found.hint, **found.values)
    return found


@contextlib.contextmanager
def open_or_temporary(settings: Settings) -> Iterator[Store]:
    """Opens the store; without one an empty temporary store."""
    with open_if_exists(settings) or empty_store(settings.store.url) as store:
        yield store


def open_to_change(settings: Settings, *, dry_run: bool) -> contextlib.AbstractContextManager[Store]:
    """Opens the store, created if missing; for a dry run as `open_or_temporary`."""
    return open_or_temporary(settings) if dry_run else open_or_create(settings)
