"""Groups moved at a word: what came of each place is told and written down, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.groups.model_sides import ModelSide
from twinshore.fleet import KafkaError
from twinshore.groups.look import GroupView, PartView
from twinshore.groups.moving import Wishes, moved, wishes_back, wishes_forward
from twinshore.groups.place import MARK
from twinshore.groups.scope import Scope
from twinshore.groups.translation import AS_IS
from twinshore.kafka.groups import always
from twinshore.store import Store, open_store
from twinshore.wire.group_places import Place, Where

TWIN = ("east.orders", 0)
SCOPE = Scope({("orders", 0): (TWIN, AS_IS)}, (("orders", "east.orders", "a", "b"),))
WISHES: Wishes = {TWIN: (None, Place(40))}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    yield found
    found.close()


def view(source: int | None, target: int | None, end: int = 100) -> GroupView:
    part = PartView("orders", 0, source, TWIN[0], source, target, "behind", end)
    return GroupView("east->west", "g", "classic", "Empty", "Empty", "behind", 0, 0, None, (part,))


def test_what_is_refused_is_told_and_written_down(store: Store) -> None:
    west = ModelSide("west")
    west.members.add("live")
    west.forbidden.add("forbidden")
    steps = [step for name in ("a", "live", "forbidden") for step in moved(store, west, "east->west", name, WISHES)]
    assert [step.refused for step in steps] == [False, True, True]
    assert west.groups == {"a": {TWIN: Place(40)}}
    told = [(row.subject, row.after, row.outcome) for row in store.audit("east->west")]
    assert sorted(told) == sorted((f"{step.group} east.orders-0 on west", "40", step.outcome) for step in steps)


class Breaking(ModelSide):
    """Its connection is refused for good at the second group."""

    def commit(
        self, places: Mapping[int, Mapping[str, Mapping[Where, Place]]], still: Callable[[], bool] = always
    ) -> dict[str, dict[Where, int]]:
        if any("b" in groups for groups in places.values()):
            raise KafkaError("west turns us away")
        return super().commit(places, still)


def test_a_failure_at_one_group_leaves_no_other_unaudited(store: Store) -> None:
    west = Breaking("west")
    for name in ("a", "b", "c"):
        moved(store, west, "east->west", name, WISHES)
    outcomes = {row.subject.split()[0]: row.outcome for row in store.audit("east->west")}
    assert outcomes == {"a": "done", "b": "refused: west turns us away", "c": "done"}


def test_no_place_lies_beyond_the_end_of_the_log_that_it_is_for() -> None:
    assert wishes_forward(view(source=70, target=10, end=40), MARK) == {TWIN: (10, Place(40, MARK))}
    assert wishes_back(view(source=10, target=70), SCOPE, {("orders", 0): 40}) == {("orders", 0): (10, Place(40))}
    assert wishes_back(view(source=10, target=70), SCOPE, {("orders", 0): 90}) == {("orders", 0): (10, Place(70))}
    assert wishes_back(view(source=40, target=70), SCOPE, {("orders", 0): 40}) == {}
    assert wishes_back(view(source=10, target=None), SCOPE, {("orders", 0): 40}) == {}
