"""A store for operations that are asked without a command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from twinshore.state.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as found:
        yield found
