"""A link's driver where a cluster, a store or a file fails it: it waits, forgets nothing, and tries again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.log_lines import LogLines
from twinshore.config.errors import ConfigError, KafkaError, RefusedError, StoreError, TwinshoreError, WireError
from twinshore.config.incident_policy import IncidentKind
from twinshore.config.model import Link, TopicPartition
from twinshore.config.settings import Settings, parse_settings
from twinshore.replication import controller
from twinshore.replication.controller import LinkController
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.coordinator import TaskReport
from twinshore.replication.core.model import SCAN_STALLED_S
from twinshore.replication.operator_control import EFFECTIVE_FILTERS_KIND, OperatorOverrides
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task.core.messages import PartitionConfig, PartitionIncident, PartitionProgress
from twinshore.replication.task_pool import TaskPool
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import Store, open_store

pytestmark = pytest.mark.claim(
    "groups",
    "word-of-links",
    "the log says of a link what status says; a look that fails makes no link flow that is paused or "
    "has no task, and none wait of which tasks carry",
)

LINK = "east->west"
SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
{security}
[clusters.west]
bootstrap = ["127.0.0.1:2"]

[links."east->west"]
topics = ["orders"]

[mirror]
heartbeat_s = 0
"""


class Place:
    """A driver with a store, a coordinator and task runs that never end; its clusters answer nothing."""

    def __init__(self, folder: Path, said: LogLines, security: str = "") -> None:
        self.said = said
        self.settings: Settings = parse_settings(SETTINGS.format(security=security), name="settings.toml", env={})
        self.store: Store = open_store(f"sqlite:///{folder}/store.db")
        self.recorder = ProgressRecorder(self.store, "first", 0.02)
        self.coordinator = CoordinatorServer("127.0.0.1", allowed_s=lambda _: 9.0, take=self.recorder.take)
        self.runs = TaskPool(self.coordinator, 60.0, self._run)
        self.link: Link = self.settings.links[0]
        self.driver = self.begun()

    def begun(self) -> LinkController:
        return LinkController(
            self.link,
            self.settings,
            store=self.store,
            coordinator=self.coordinator,
            task_pool=self.runs,
            recorder=self.recorder,
            owner="first",
            tasks=1,
            outages=OutageLog(),
        )

    def turned(self, holds: Callable[[str], bool]) -> str:
        """Turns until what it says holds; a store that fails is told in words, as `run` does."""
        deadline = time.monotonic() + 20
        while True:
            try:
                sentence = self.driver.turn()
            except StoreError as error:
                sentence = str(error)
            if holds(sentence):
                return sentence
            assert time.monotonic() < deadline, (sentence, self.said)
            time.sleep(0.02)

    def close(self) -> None:
        self.runs.close()
        self.driver.close(clean=True)
        self.coordinator.close()
        self.recorder.close()
        self.store.close()

    def _run(self, *_: str) -> str:
        time.sleep(0.5)
        return "finished"


@pytest.fixture
def places(tmp_path: Path, log_lines: LogLines) -> Iterator[Callable[[str], Place]]:
    made: list[Place] = []

    def make(security: str = "") -> Place:
        made.append(Place(tmp_path, log_lines, security))
        return made[-1]

    yield make
    for place in made:
        place.close()


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    answering_clusters(monkeypatch)


def answering_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """What both clusters would answer at the beginning of a term; nothing after it."""
    identity = LinkIdentity(LINK, 4_711, 0, "east's id", "west's id")
    monkeypatch.setattr(controller, "establish_identity", lambda *_: identity)
    monkeypatch.setattr(controller, "may_write_markers", lambda _: True)
    monkeypatch.setattr(controller, "read_state_expiry_ms", lambda _: 86_400_000)
    monkeypatch.setattr(LinkController, "_survey", lambda _: None)


def failing_once(monkeypatch: pytest.MonkeyPatch, part: object, name: str) -> None:
    asked, failed = getattr(part, name), list[str]()

    def first_fails(*args: Any, **more: Any) -> Any:
        if not failed:
            failed.append(name)
            raise StoreError("the store does not answer")
        return asked(*args, **more)

    monkeypatch.setattr(part, name, first_fails)


@pytest.mark.usefixtures("answering")
def test_a_store_that_fails_while_a_term_begins_costs_a_turn_and_nothing_else(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.recorder.stopped(LINK, PartitionIncident("orders", 1, IncidentKind.CORRUPT_BATCH, 5, 7, "its CRC is wrong"))
    failing_once(monkeypatch, place.store.incidents, "rows")
    place.turned(lambda sentence: "the store does not answer" in sentence)
    place.turned(lambda sentence: "1 partition stopped by incidents" in sentence)
    place.coordinator.assign((LINK, 0), [PartitionConfig("orders", 0, "00", "00")])
    assert set(place.coordinator.placed(LINK)) == {TopicPartition("orders", 0)}
    assert any("orders-1 is stopped: corrupt batch" in sentence for sentence in place.said)


@pytest.mark.usefixtures("answering")
def test_brokers_that_forget_sooner_than_was_believed_have_the_tasks_begin_anew(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    place.driver._slow_checks.state_expiry_ms = 60_000
    monkeypatch.setattr(controller, "read_state_expiry_ms", lambda _: 60_000)
    place.turned(lambda sentence: "flowing" in sentence)
    assert place.driver._order(0, 1).state_expiry_ms == 60_000
    assert sum("west is shorter now" in sentence for sentence in place.said) == 1


@pytest.mark.usefixtures("answering")
def test_a_cut_that_is_forbidden_while_the_mirror_runs_has_the_tasks_begin_anew(
    places: Callable[..., Place], tmp_path: Path
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    assert not place.driver._order(0, 1).never_cut
    (tmp_path / "now.toml").write_text(f"{SETTINGS.format(security='')}[safety]\nnever_delete = true\n")
    place.driver._safety._file = tmp_path / "now.toml"
    assert place.driver._safety.against()
    place.turned(lambda sentence: "flowing" in sentence)
    assert place.driver._order(0, 1).never_cut
    assert sum("its tasks start again" in sentence for sentence in place.said) == 1


@pytest.mark.usefixtures("answering")
def test_tasks_cut_nothing_while_nobody_knows_what_may_be_cut(places: Callable[..., Place], tmp_path: Path) -> None:
    place, file = places(), tmp_path / "now.toml"
    place.driver._safety._file = file
    for text, never in ((SETTINGS, False), ("[safety\n", True), (SETTINGS, False)):
        file.write_text(text.format(security=""))
        place.driver._safety.against()
        place.turned(lambda sentence: "flowing" in sentence)
        assert place.driver._order(0, 1).never_cut is never, text
    assert any("be cut off again; its tasks start again" in sentence for sentence in place.said)


@pytest.mark.usefixtures("answering")
def test_a_term_says_again_which_filters_hold(places: Callable[..., Place]) -> None:
    """A standby with other settings may have carried the link meanwhile, and given topics up."""
    place = places()

    def said() -> str:
        return "".join(row.value for row in place.store.link_states.of(LINK, EFFECTIVE_FILTERS_KIND))

    place.turned(lambda _: said().startswith('[["orders"]'))
    edited = replace(place.link, topics=("lists",))
    other = OperatorOverrides(edited, [edited], place.store)
    other.changed()
    other.acknowledge(tasks_left=True)
    assert said().startswith('[["lists"]')
    place.driver._end_epoch()
    place.turned(lambda _: said().startswith('[["orders"]'))


@pytest.mark.usefixtures("answering")
def test_a_term_begins_with_what_the_settings_file_forbids_at_that_moment(
    places: Callable[..., Place], tmp_path: Path
) -> None:
    """A standby that was started before the operator wrote it, and has looked at nothing since."""
    place = places()
    (tmp_path / "now.toml").write_text(f"{SETTINGS.format(security='')}[safety]\nnever_delete = true\n")
    place.driver._safety._file = tmp_path / "now.toml"
    place.turned(lambda sentence: "flowing" in sentence)
    assert place.driver._order(0, 1).never_cut
    assert not any("its tasks start again" in sentence for sentence in place.said), "no task ever had another order"


def test_a_long_look_deals_out_nothing_by_an_order_that_holds_no_more(
    places: Callable[..., Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = LinkController._survey
    answering_clusters(monkeypatch)
    place, dealt = places(), list[str]()
    place.turned(lambda sentence: "flowing" in sentence)
    topics = {f"topic {number:03}": ("00", 1) for number in range(250)}

    def deals(names: list[str], *_: object) -> None:
        dealt.extend(names)
        (tmp_path / "now.toml").write_text(f"{SETTINGS.format(security='')}[safety]\nnever_delete = true\n")

    (tmp_path / "now.toml").write_text(SETTINGS.format(security=""))
    place.driver._safety._file = tmp_path / "now.toml"
    for part, name, answer in (
        (place.driver._claim, "check", None),
        (place.driver._scanner, "names", topics),
        (place.driver._homes.records, "look", {}),
        (place.driver._homes.records, "take_up_switches", None),
        (place.driver._lineage, "admitted", topics),
        (place.driver._overrides, "flowing", topics),
    ):
        monkeypatch.setattr(part, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(place.driver, "_apply_plan", deals)
    looks(place.driver)
    assert dealt == sorted(topics)[:100]
    place.turned(lambda sentence: "flowing" in sentence)
    assert place.driver._order(0, 1).never_cut


@pytest.mark.parametrize("error", [WireError("not a batch", offset=12), ConfigError("secret file gone cannot be read")])
@pytest.mark.usefixtures("answering")
def test_one_topics_bytes_or_one_secret_file_hold_up_their_own_link_alone(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch, error: TwinshoreError
) -> None:
    place = places()

    def fails(_: LinkController) -> None:
        raise error

    monkeypatch.setattr(LinkController, "_survey", fails)
    assert place.turned(lambda sentence: error.message in sentence) == f"{LINK}: waiting: {error}"
    monkeypatch.setattr(LinkController, "_survey", lambda _: None)
    place.turned(lambda sentence: "flowing" in sentence)


@pytest.mark.usefixtures("answering")
def test_what_is_on_its_tasks_flows_while_a_look_fails_and_log_and_status_say_the_same(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    place.coordinator.assign((LINK, 0), [PartitionConfig("orders", 0, "00", "00")])
    error = KafkaError("east: metadata: nobody answers in time", retriable=True)

    def agrees(sentence: str) -> str:
        word = place.recorder.words()[LINK]
        assert sentence == f"{LINK}: {word['state']}: {word['says']}"
        return word["state"]

    def fails(_: LinkController) -> None:
        raise error

    monkeypatch.setattr(LinkController, "_survey", fails)
    monkeypatch.setattr(place.driver, "_surveyed_at_s", 0.0)
    everything = {TopicPartition("orders", 0)}
    for unmanned, paused, away, state in (
        (everything, False, "", "waiting"),
        (set(), False, "", "flowing"),
        (set(), False, "east does not answer", "waiting"),
        (set(), True, "east does not answer", "paused"),
        (everything, True, "", "paused"),
    ):
        monkeypatch.setattr(place.coordinator, "unmanned", lambda _, unmanned=unmanned: unmanned)
        control = replace(place.link.control, paused=paused)
        monkeypatch.setattr(place.driver, "link", replace(place.link, control=control))
        monkeypatch.setattr(place.driver._overrides, "link", replace(place.link, control=control))
        place.recorder.away(LINK, "source", away)
        sentence = place.driver.turn()
        assert error.message in sentence
        assert agrees(sentence) == state, sentence
    monkeypatch.setattr(place.coordinator, "unmanned", lambda _: set())
    for control, state in ((replace(place.link.control, paused=False), "waiting"), (place.link.control, "flowing")):
        monkeypatch.setattr(place.driver, "link", replace(place.link, control=control))
        monkeypatch.setattr(place.driver._overrides, "link", replace(place.link, control=control))
        place.recorder.away(LINK, "source", "")
        monkeypatch.setattr(place.driver, "_hindered_at_s", time.monotonic() - SCAN_STALLED_S)
        assert agrees(place.driver.turn()) == state, "who waits for topics for a minute is told"
        monkeypatch.setattr(LinkController, "_survey", lambda _: None)
    monkeypatch.setattr(LinkController, "_survey", fails)
    assert agrees(place.driver.turn()) == "flowing", "a look between has ended"


@pytest.mark.usefixtures("answering")
def test_a_paused_link_that_may_not_run_at_all_waits(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    paused = replace(place.link, control=replace(place.link.control, paused=True))
    monkeypatch.setattr(place.driver, "link", paused)
    monkeypatch.setattr(place.driver._overrides, "link", paused)

    def refuses(_: LinkController) -> None:
        raise RefusedError("another store has the link")

    monkeypatch.setattr(LinkController, "_apply_overrides", refuses)
    with pytest.raises(RefusedError):
        place.driver.turn()
    assert place.recorder.words()[LINK] == {"state": "waiting", "says": "another store has the link"}


def test_a_cluster_whose_authorities_are_not_there_is_waited_for(places: Callable[..., Place]) -> None:
    place = places('[clusters.east.security]\ntls = true\nca_file = "/nowhere/ca.pem"')
    assert "is not a file" in place.turned(lambda sentence: f"{LINK}: waiting: " in sentence)


@pytest.mark.usefixtures("answering")
def test_a_term_that_ends_takes_along_what_its_tasks_told(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    place.recorder.take(TaskReport(LINK, 0, (PartitionProgress("orders", 0, 0, 5, 5, 50, 1, 9, 2, 1, 2),), (), {}))
    live = place.recorder.stats[LINK]
    place.turned(lambda _: bool(live.heard))
    assert live.lag == {TopicPartition("orders", 0): 4}
    with monkeypatch.context() as lost:
        lost.setattr(place.driver.lease, "generation", lambda: 0)
        place.turned(lambda sentence: "standby" in sentence)
    assert (live.lag, live.starts, live.heard) == ({}, {}, {})


@pytest.mark.usefixtures("answering")
def test_a_link_that_another_store_has_taken_over_carries_nothing_more(
    places: Callable[..., Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places()
    place.turned(lambda sentence: "flowing" in sentence)
    place.coordinator.assign((LINK, 0), [PartitionConfig("orders", 0, "00", "00")])

    def fails(_: LinkController) -> None:
        raise RefusedError("it is written by store 3f2a09c1")

    monkeypatch.setattr(LinkController, "_survey", fails)
    with pytest.raises(RefusedError):
        place.turned(lambda _: False)
    assert not place.driver.is_ours()
    assert not place.coordinator.placed(LINK)
