"""One topic of a target is carried by one link, whatever settings the processes of two links have read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from twinshore.fleet import Link
from twinshore.mirror.control import ruling
from twinshore.mirror.control.ruling import Ruling
from twinshore.mirror.others import ALIVE_MS, Others
from twinshore.mirror.plan import CarryTopic, Refuse, Settle, Step
from twinshore.store import ControlRow, LinkStatus, Store, open_store

A = Link("east", "west", ("a.*",))
B = Link("north", "west", ("b.*",))
B_EDITED = Link("north", "west", ("b.*", "x.*"))
OF_A = CarryTopic("x.1", 2, "id of east", "id of twin")
OF_B = CarryTopic("x.1", 2, "id of north", "id of twin")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(ruling, "EVERY_S", 0.0)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def says(store: Store, link: Link, state: str = "flowing", ago_ms: int = 0) -> None:
    store.links.save_status(LinkStatus(link.name, link.name, state, "", int(time.time() * 1000) - ago_ms))


def wishes(store: Store, link: Link, topics: list[str]) -> None:
    row = ControlRow(link.name, "topics", json.dumps(topics), 1, "me")
    assert store.controls.change(link.name, {"topics": row}, seen=store.controls.version(link.name), told=())


def test_two_processes_with_other_settings_never_carry_one_topic(store: Store) -> None:
    """Operators gave x to A. B's settings are edited to carry it too; B's mirror starts anew, A's runs on."""
    wishes(store, A, ["a.*", "x.*"])
    of_a = Ruling(A, [A, B], store, print)
    assert of_a.changed()
    assert of_a.link.topics == ("a.*", "x.*")
    assert Others(A, store).kept([OF_A]) == [OF_A]
    says(store, A)
    of_b = Ruling(B_EDITED, [A, B_EDITED], store, print)
    of_b.changed()
    assert (of_a.changed(), of_a.link.topics, of_b.link.topics) == (False, ("a.*", "x.*"), ("b.*", "x.*"))
    says(store, B)
    eye = Others(B_EDITED, store)
    steps: list[Step] = [Settle("x.1", (("retention.ms", "1"),), "id of twin"), OF_B, CarryTopic("b.1", 1, "n", "t")]
    kept, refused = eye.judged(steps, {})
    assert kept == steps[2], "nothing of its settings is touched"
    assert isinstance(refused, Refuse)
    assert refused.sentence == "topic x.1 on west is the twin of link east->west, whose mirror carries it"
    assert eye.kept([OF_B]) == []
    assert not store.twins.of(B.name)
    assert Others(A, store).kept([OF_A]) == [OF_A], "who had it goes on"
    # A's mirror reads the new settings: its filters step back, and it says so.
    anew = Ruling(A, [A, B_EDITED], store, print)
    anew.changed()
    assert anew.link.topics == ("a.*",)
    assert eye.judged([OF_B], {}) == [OF_B]
    assert eye.kept([OF_B]) == [OF_B]


class Parked(Others):
    """Held up right behind the writing of its row."""

    meanwhile: Callable[[], object] | None = None

    def _taken(self, steps: Iterable[CarryTopic]) -> dict[str, str]:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        return super()._taken(steps)


def test_of_two_that_begin_at_once_one_goes_on(store: Store) -> None:
    for link in (A, B):
        says(store, link)
    first, told = Parked(A, store), list[list[CarryTopic]]()
    first.meanwhile = lambda: told.append(Others(B, store).kept([OF_B]))
    assert (first.kept([OF_A]), told) == ([OF_A], [[]])
    assert {row.link for link in (A, B) for row in store.twins.of(link.name)} == {A.name}


@pytest.mark.parametrize("why", ["stopped", "silent", "another topic", "alive"])
def test_only_a_mirror_that_lives_and_the_very_topic_keep_another_link_out(store: Store, why: str) -> None:
    assert Others(A, store).kept([OF_A]) == [OF_A]
    says(store, A, "stopped" if why == "stopped" else "flowing", 2 * ALIVE_MS if why == "silent" else 0)
    step = replace(OF_B, target_topic_id="id of another") if why == "another topic" else OF_B
    wanted = [] if why == "alive" else [step]
    assert [one for one in Others(B, store).judged([step], {}) if one == step] == wanted
    assert Others(B, store).kept([step]) == wanted
    assert Others(B, store).judged([OF_B], {"x.1"}) == [OF_B], "what it carried before is not judged anew"
