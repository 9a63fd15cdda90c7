"""One topic of a target is carried by one link, whatever settings the processes of two links have read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testkit.errors import mentions
from twinshore.config.errors import StoreError
from twinshore.config.model import Link, OffsetRun, SourceOffset, TargetOffset
from twinshore.replication import operator_control
from twinshore.replication.core.model import CarryTopic, PlanStep, Refuse, Settle
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND, OperatorOverrides
from twinshore.replication.topic_scanner import TAKEN_OVER_KIND, TopicConflicts
from twinshore.state.core.values import ControlRow, LinkStatus, TwinRow
from twinshore.state.store import Store, open_store

A = Link("east", "west", ("a.*",))
B = Link("north", "west", ("b.*",))
B_EDITED = Link("north", "west", ("b.*", "x.*"))
OF_A = CarryTopic("x.1", 2, "id of east", "id of twin")
OF_B = CarryTopic("x.1", 2, "id of north", "id of twin")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(operator_control, "OVERRIDES_POLL_INTERVAL_S", 0.0)
    with open_store(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


def says(store: Store, link: Link, state: str = "flowing", ago_ms: int = 0) -> None:
    store.links.save_status(LinkStatus(link.name, link.name, state, "", int(time.time() * 1000) - ago_ms))


def holds(store: Store, link: Link) -> None:
    """The link's mirror reads these settings, and has acknowledged them."""
    ruled = OperatorOverrides(link, [link], store)
    ruled.changed()
    ruled.acknowledge(tasks_left=True)


def wishes(store: Store, link: Link, topics: list[str]) -> None:
    row = ControlRow(link.name, "topics", json.dumps(topics), 1, "me")
    assert store.controls.change(link.name, {"topics": row}, seen=store.controls.version(link.name), told=())


def test_two_processes_with_other_settings_never_carry_one_topic(store: Store) -> None:
    """Operators gave x to A. B's settings are edited to carry it too; B's mirror starts anew, A's runs on."""
    wishes(store, A, ["a.*", "x.*"])
    of_a = OperatorOverrides(A, [A, B], store)
    assert of_a.changed()
    of_a.acknowledge(tasks_left=True)
    assert of_a.link.topics == ("a.*", "x.*")
    assert TopicConflicts(A, store).kept([OF_A], {}) == [OF_A]
    says(store, A)
    of_b = OperatorOverrides(B_EDITED, [A, B_EDITED], store)
    of_b.changed()
    assert (of_a.changed(), of_a.link.topics, of_b.link.topics) == (False, ("a.*", "x.*"), ("b.*", "x.*"))
    says(store, B)
    eye = TopicConflicts(B_EDITED, store)
    steps: list[PlanStep] = [
        Settle("x.1", (("retention.ms", "1"),), "id of twin"),
        OF_B,
        CarryTopic("b.1", 1, "n", "t"),
    ]
    kept, refused = eye.judged(steps, {})
    assert kept == steps[2], "nothing of its settings is touched"
    assert isinstance(refused, Refuse)
    assert mentions(refused.sentence, "x.1", "west", "east->west")
    assert "`twinshore mirror forget x.1 --link east..west`" in refused.hint
    assert eye.kept([OF_B], {}) == []
    assert not store.twins.of(B.name)
    assert TopicConflicts(A, store).kept([OF_A], {"x.1"}) == [OF_A], "who had it goes on"
    # A's mirror reads the new settings: its filters step back, and it says so.
    anew = OperatorOverrides(A, [A, B_EDITED], store)
    anew.changed()
    assert anew.link.topics == ("a.*",)
    assert eye.kept([OF_B], {}) == [], "tasks may still write"
    assert anew.take_unwanted_topics({"x.1"}, lambda _: False) == ["x.1"]
    anew.acknowledge(tasks_left=True)
    assert eye.kept([OF_B], {}) == [], "its task has not let go of it"
    assert anew.take_unwanted_topics({"x.1"}, lambda _: True) == []
    anew.acknowledge(tasks_left=False)
    assert eye.kept([OF_B], {}) == [], "tasks of tasks that were closed may still write"
    anew.acknowledge(tasks_left=True)
    assert eye.judged([OF_B], {}) == [OF_B]
    assert eye.kept([OF_B], {}) == [OF_B]


class Parked(TopicConflicts):
    """Held up before its so manieth look at others' rows; the second is right behind the writing of its own."""

    at, looks = 2, 0
    meanwhile: Callable[[], object]

    def _claims(self, steps: Iterable[CarryTopic]) -> tuple[dict[str, TwinRow], list[TwinRow]]:
        self.looks += 1
        if self.looks == self.at:
            self.meanwhile()
        return super()._claims(steps)


def test_of_two_that_begin_at_once_one_goes_on(store: Store) -> None:
    for link in (A, B):
        says(store, link)
    first, told = Parked(A, store), list[list[CarryTopic]]()
    first.meanwhile = lambda: told.append(TopicConflicts(B, store).kept([OF_B], {}))
    assert (first.kept([OF_A], {}), told) == ([OF_A], [[]])
    assert {row.link for link in (A, B) for row in store.twins.of(link.name)} == {A.name}


@pytest.mark.parametrize("why", ["stopped", "silent for long", "of a clock that is late", "never heard", "flowing"])
def test_the_first_row_keeps_another_link_out_whether_or_not_its_mirror_seems_to_live(store: Store, why: str) -> None:
    """What clocks of two hosts say of a mirror proves nothing: tasks of one that seems dead may write."""
    assert TopicConflicts(A, store).kept([OF_A], {}) == [OF_A]
    if why != "never heard":
        ago_ms = {"silent for long": 3_600_000, "of a clock that is late": 61_000}.get(why, 0)
        says(store, A, "stopped" if why == "stopped" else "flowing", ago_ms)
    eye = TopicConflicts(B, store)
    assert [type(one) for one in eye.judged([OF_B], {})] == [Refuse]
    assert eye.kept([OF_B], {}) == []
    another = replace(OF_B, target_topic_id="id of another")
    assert (eye.judged([another], {}), eye.kept([another], {})) == ([another], [another])
    store.forget_topic(B.name, "x.1")
    assert eye.judged([OF_B], {"x.1"}) == [OF_B], "what it carried before is not judged anew"
    store.forget_topic(A.name, "x.1")
    assert (eye.judged([OF_B], {}), eye.kept([OF_B], {})) == ([OF_B], [OF_B]), "an operator's word frees it"


def test_who_gave_a_twin_over_gets_it_back_only_the_same_way(store: Store) -> None:
    """Filters that are widened again do not make two writers of one twin, whoever starts when."""
    wide, of_a, of_b = Link("east", "west", ("a.*", "x.*")), TopicConflicts(A, store), TopicConflicts(B, store)
    assert of_a.kept([OF_A], {}) == [OF_A]
    holds(store, A)
    assert of_b.kept([OF_B], {}) == [OF_B]
    holds(store, wide)
    holds(store, B_EDITED)
    assert [type(one) for one in of_a.judged([OF_A], {"x.1"})] == [Refuse]
    assert of_a.kept([OF_A], {"x.1"}) == []
    assert (of_b.judged([OF_B], {"x.1"}), of_b.kept([OF_B], {"x.1"})) == ([OF_B], [OF_B]), "who has it now keeps it"
    assert {row.link for row in store.twins.of_target_topics([OF_A.target_topic_id])} == {A.name, B.name}
    holds(store, B)
    assert (of_a.judged([OF_A], {"x.1"}), of_a.kept([OF_A], {"x.1"})) == ([OF_A], [OF_A])
    holds(store, B_EDITED)
    assert ([type(one) for one in of_b.judged([OF_B], {"x.1"})], of_b.kept([OF_B], {"x.1"})) == ([Refuse], [])


def test_a_twin_is_not_taken_over_while_its_link_wants_it_back(store: Store) -> None:
    assert TopicConflicts(A, store).kept([OF_A], {}) == [OF_A]
    holds(store, A)

    late = Parked(B, store)
    late.meanwhile = lambda: holds(store, Link("east", "west", ("x.*",)))
    assert late.kept([OF_B], {}) == []
    assert (store.twins.of(B.name), store.link_states.of(A.name, TAKEN_OVER_KIND)) == ((), ())
    assert TopicConflicts(A, store).judged([OF_A], {"x.1"}) == [OF_A]


def adopted(store: Store, link: Link, step: CarryTopic) -> None:
    """As the adopter leaves a topic that it has just taken on: with its rows."""
    row = TwinRow(link.name, step.topic, 0, step.source_topic_id, step.target_topic_id, 7, 0, 1)
    store.offset_runs.adopt([(row, OffsetRun(SourceOffset(7), TargetOffset(9), 0, 0))])


def acted(store: Store, link: Link, step: CarryTopic) -> bool:
    """A look of the link's driver at a mapped topic: whether it carries it from now on."""
    eye, known = TopicConflicts(link, store), {row.topic for row in store.twins.of(link.name)}
    if eye.judged([step], known) != [step] or eye.without_foreign_twins([step], known) != [step]:
        return False
    if step.topic not in known:
        adopted(store, link, step)
    return eye.kept([step], known) == [step]


def test_a_mapped_twin_that_was_given_over_has_one_link_too(store: Store) -> None:
    """Adoption writes the rows before anybody is asked whether the twin is the link's."""
    wide = Link("east", "west", ("a.*", "x.*"))
    assert acted(store, wide, OF_A)
    assert not acted(store, B_EDITED, OF_B)
    holds(store, A)
    assert acted(store, B_EDITED, OF_B)
    assert [row.link for row in store.link_states.of(A.name, TAKEN_OVER_KIND)] == [A.name]
    holds(store, wide)
    holds(store, B_EDITED)
    assert not acted(store, wide, OF_A)
    assert acted(store, B_EDITED, OF_B), "who has it now keeps it"


def test_of_two_that_adopt_a_topic_at_once_one_lets_go_with_all_its_rows(store: Store) -> None:
    adopted(store, A, OF_A)
    adopted(store, B, OF_B)
    assert TopicConflicts(B, store).kept([OF_B], {}) == []
    assert not store.twins.of(B.name)
    assert not store.offset_runs.reached(B.name)
    assert TopicConflicts(A, store).kept([OF_A], {}) == [OF_A]


@pytest.mark.parametrize("before", [False, True], ids=["nobody had it", "a link had it before"])
def test_rows_that_stand_while_the_store_fails_are_judged_when_it_answers(store: Store, before: bool) -> None:
    def fail() -> None:
        raise StoreError("the store does not answer")

    eye = Parked(B, store)
    eye.at, eye.meanwhile = 2 + before, fail
    if before:
        assert TopicConflicts(A, store).kept([OF_A], {}) == [OF_A]
        holds(store, A)
    with pytest.raises(StoreError):
        eye.kept([OF_B], {})
    known = {row.topic for row in store.twins.of(B.name)}
    assert known == {"x.1"}
    assert len(store.link_states.of(A.name, TAKEN_OVER_KIND)) == before, "it is remembered before any row is written"
    store.twins.save([TwinRow(A.name, "x.1", 0, "id of east", "id of twin", 0, 0, 1)])
    store.link_states.forget(store.link_states.of(A.name, EFFECTIVE_FILTERS_KIND))
    for _ in range(2):
        assert [type(one) for one in eye.judged([OF_B], known)] == [Refuse]
        assert eye.kept([OF_B], known) == []
