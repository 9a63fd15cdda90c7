"""A link that cannot begin leaves nothing behind that keeps the next try from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mirror.driver.test_link_driver import Place
from twinshore.mirror.driver import link_driver
from twinshore.service.lease_keeper import kept


def test_a_driver_that_could_not_be_made_keeps_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It renewed it for ever, and the next one stood by behind it."""
    place = Place(tmp_path)
    before = list(kept._keepers[place.store])
    assert before == [place.driver.lease]

    def none_left(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(link_driver, "LogStarts", none_left)
    with pytest.raises(RuntimeError):
        place.begun()
    assert kept._keepers[place.store] == before
    place.close()
