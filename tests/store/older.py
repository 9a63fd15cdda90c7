"""The store of an earlier version, as an operator brings it to this one's before it is opened."""

from __future__ import annotations

from twinshore.fleet import Secret
from twinshore.store import Store, open_store
from twinshore.store.unopened import Unopened


def open_upgraded(url: str) -> Store:
    with Unopened(url, Secret()) as found:
        found.upgrade()
    return open_store(url)
