"""Which links a process runs, as operators change them: real drivers, whose clusters answer nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit.errors import mentions
from testkit.log_lines import LogLines
from twinshore.config.errors import RefusedError
from twinshore.config.model import Link
from twinshore.config.settings import parse_settings
from twinshore.replication import main
from twinshore.replication.controller import LinkController
from twinshore.replication.coordinator_server import CoordinatorServer
from twinshore.replication.core.lease_epoch import LeaseEpoch
from twinshore.replication.links import LinkRegistry, adopt_settings
from twinshore.replication.main import ControllerLoop, LinkSupervisor, RunningLink, start_link
from twinshore.replication.operations.link_admin import AddLink, ChangeLink, LinkRequest, RemoveLink, act, plan
from twinshore.replication.recorder import ProgressRecorder
from twinshore.replication.task_pool import TaskPool
from twinshore.runtime.endpoints import LinkContext, LinkService
from twinshore.runtime.logging import OutageLog
from twinshore.state.core.values import LinkIdentity
from twinshore.state.store import open_store

ONE, TWO, THREE = "east->west", "west->north", "north->east"
WITHIN_S = 60.0
SETTINGS = f"""
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[clusters.west]
bootstrap = ["127.0.0.1:2"]
[clusters.north]
bootstrap = ["127.0.0.1:3"]
[links."{ONE}"]
topics = ["orders"]
[links."{TWO}"]
topics = ["bills"]
[mirror]
heartbeat_s = 0
lease_s = 3
progress_s = 0.2
"""


class Beginning:
    """Runs beside a link, and does nothing."""

    def close(self) -> None:
        return


class Place:
    """A roster with room for two links."""

    def __init__(self, folder: Path, said: LogLines) -> None:
        self.said = said
        self.begun: list[RunningLink] = []
        self.left: list[str] = []
        self.settings = parse_settings(SETTINGS, name="settings.toml", env={})
        self.store = open_store(f"sqlite:///{folder}/store.db")
        begins = adopt_settings(self.settings, self.store, by="the settings")
        self.registry = LinkRegistry(self.settings, self.store, begins, ())
        self.recorder = ProgressRecorder(self.store, "first", 0.02)
        self.coordinator = CoordinatorServer(
            "127.0.0.1", allowed_s=lambda link: self.roster.left_s(link), take=self.recorder.take
        )
        self.runs = TaskPool(self.coordinator, 60.0, lambda *_: "finished")
        self.roster = LinkSupervisor(self.registry, self.begin, self.leave, links_max=2, stop_s=2.0)
        self.companions: tuple[LinkService, ...] = ()
        self.unable = ""
        self.hold = threading.Event()
        self.holding: set[str] = set()

    def begin(self, link: Link) -> RunningLink:
        driver = LinkController(
            link,
            self.registry.settings_around(link),
            store=self.store,
            coordinator=self.coordinator,
            task_pool=self.runs,
            recorder=self.recorder,
            owner="first",
            tasks=1,
            outages=OutageLog(),
        )
        turn = driver.turn

        def taking_its_time() -> str:
            said = turn()
            if self.hold.is_set():  # a cluster that takes its time
                self.holding.add(link.name)
                while self.hold.is_set():
                    time.sleep(0.02)
            return said

        driver.turn = taking_its_time  # type: ignore[method-assign]

        def drive(one: LinkController) -> ControllerLoop:
            return ControllerLoop(one, OutageLog(), lambda *_: None, lambda error: self.said.append(str(error)))

        beside = LinkContext(link, self.settings, self.store, driver.is_ours, OutageLog())
        starts = [lambda _, one=one: one for one in self.companions]
        self.begun.append(start_link(link, driver, [*starts, self._start], beside, drive))
        return self.begun[-1]

    def _start(self, beside: LinkContext) -> LinkService:
        if beside.link.name == self.unable:
            raise OSError("no thread more")
        return Beginning()

    def leave(self, link: Link) -> None:
        self.recorder.leave(link.name)
        self.left.append(link.name)

    def ask(self, asked: LinkRequest) -> None:
        assert list(act(plan(asked, self.settings, self.store), self.settings, self.store, by="anna"))
        self.registry.turn()

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            self.roster.turn()
            assert time.monotonic() < deadline, (self.names(), self.left, self.said)
            time.sleep(0.02)

    def names(self) -> list[str]:
        return [one.link.name for one in self.begun]

    def held(self, link: str) -> bool:
        row = self.store.leases.read(f"link {link}")
        return row is not None and not row.released

    def close(self) -> None:
        self.hold.clear()
        self.roster.close()
        self.runs.close()
        self.coordinator.close()
        self.recorder.close()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, log_lines: LogLines) -> Iterator[Place]:
    made = Place(tmp_path, log_lines)
    yield made
    made.close()


def test_tasks_are_granted_nothing_before_or_behind_the_term_that_they_are_of(place: Place) -> None:
    """A lease that was another's in between, and is ours again before the driver has seen either."""
    place.until(lambda: place.held(ONE))
    running = place.roster._running[ONE]
    running._drive.close(20.0)
    driver, generation = running.controller, running.controller.lease.generation()
    assert place.roster.left_s(ONE) == 0.0, "no task is open"
    who = LinkIdentity(ONE, 7, 0, "east", "west")
    driver._epoch = LeaseEpoch(generation, who, 86_400_000, "", never_cut=False)
    assert place.roster.left_s(ONE) > 0
    driver._epoch = LeaseEpoch(generation - 1, who, 86_400_000, "", never_cut=False)
    assert driver.lease.left_s() > 0
    assert place.roster.left_s(ONE) == 0.0
    driver._epoch = None


def test_a_removed_link_ends_and_says_so_and_the_others_are_the_same_as_before(place: Place) -> None:
    place.until(lambda: place.held(ONE) and place.held(TWO))
    place.ask(RemoveLink(ONE))
    place.until(lambda: place.left == [ONE])
    assert not place.held(ONE)
    assert place.names() == [ONE, TWO], "nothing else began"
    assert place.held(TWO)
    assert place.roster.left_s(ONE) == 0.0, "the coordinator grants its tasks nothing"
    words = {word.link: (word.state, word.sentence) for word in place.store.links.statuses()}
    assert words[ONE][0] == "stopped" and mentions(words[ONE][1], "removed by anna")
    assert ONE not in place.recorder.words(), "nobody says anything of it any more"
    place.ask(AddLink(ONE, ['topics=["orders"]']))
    place.until(lambda: place.held(ONE))
    assert place.names() == [ONE, TWO, ONE]
    place.until(lambda: ONE in place.recorder.words())
    assert place.recorder.words()[ONE]["state"] != "stopped", "its last word was the last one's"


class Stubborn:
    """Runs beside a link, and cannot be ended in good order."""

    def close(self) -> None:
        raise OSError("the disk is gone")


def test_what_fails_at_the_end_of_a_link_keeps_neither_its_lease_nor_what_runs_beside_it(place: Place) -> None:
    """Else the process would renew the lease for ever, and stand by for itself."""
    place.companions = (Stubborn(), Stubborn())
    place.until(lambda: place.held(ONE) and place.held(TWO))
    place.ask(RemoveLink(ONE))
    place.until(lambda: place.left == [ONE])
    assert not place.held(ONE)
    assert any(mentions(one, ONE, "OSError: the disk is gone") for one in place.said)
    place.ask(AddLink(ONE, ['topics=["orders"]']))
    place.until(lambda: place.held(ONE))


def test_a_link_beside_which_something_cannot_start_leaves_its_lease_to_others(place: Place) -> None:
    place.unable = ONE
    place.until(lambda: place.held(TWO))
    assert place.names() == [TWO]
    assert any(one.startswith(f"{ONE}: cannot start: OSError: no thread more") for one in place.said), place.said
    time.sleep(0.5)
    assert not place.held(ONE), "no driver turns that would take it"


def test_a_link_that_could_not_begin_is_tried_again_and_says_so_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "START_RETRY_S", 0.1)
    place.unable = ONE
    place.until(lambda: place.held(TWO))
    time.sleep(0.5)
    place.until(lambda: any("cannot start" in one for one in place.said))
    assert len([one for one in place.said if "cannot start" in one]) == 1, place.said
    place.unable = ""
    place.until(lambda: place.held(ONE))


def test_a_changed_link_begins_again_only_once_its_driver_has_ended(place: Place) -> None:
    place.until(lambda: place.held(ONE) and place.held(TWO))
    place.hold.set()
    place.until(lambda: ONE in place.holding)
    place.ask(ChangeLink(ONE, ['topics=["orders", "letters"]']))
    until_s = time.monotonic() + 3.0  # longer than tasks would be waited for
    while time.monotonic() < until_s:
        place.roster.turn()
        time.sleep(0.02)
    assert place.names() == [ONE, TWO], "a turn of it still waits"
    assert place.held(ONE)
    place.hold.clear()
    place.until(lambda: place.names() == [ONE, TWO, ONE])
    assert place.begun[-1].link.topics == ("orders", "letters")
    place.until(lambda: place.held(ONE))


def test_a_link_that_cannot_be_with_the_settings_of_this_mirror_is_named(place: Place) -> None:
    """Whoever added it knows a cluster more. Nobody carries it here, and the log is where that is looked for."""
    wider = parse_settings(SETTINGS + '[clusters.south]\nbootstrap = ["127.0.0.1:4"]\n', name="settings.toml", env={})
    asked = AddLink("east->south", ['topics=["letters"]'])
    assert list(act(plan(asked, wider, place.store), wider, place.store, by="anna"))
    for _ in range(3):
        place.registry.turn()
    place.ask(ChangeLink(ONE, ['topics=["orders", "letters"]']))
    told = [line for line in place.said if line.startswith("east->south: is in the store, and cannot be with these")]
    assert len(told) == 1, place.said


def test_a_link_that_there_is_no_room_for_waits_until_another_goes(place: Place) -> None:
    place.until(lambda: place.names() == [ONE, TWO])
    place.ask(AddLink(THREE, ['topics=["letters"]']))
    for _ in range(5):
        place.roster.turn()
    assert place.names() == [ONE, TWO]
    told = f"{THREE}: waits: this mirror started with room for 2 links; start it again"
    assert place.said.count(told) == 1
    place.ask(RemoveLink(TWO))
    place.until(lambda: place.names() == [ONE, TWO, THREE])


def test_the_remedy_of_a_refused_link_is_said_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: LinkController) -> str:
        raise RefusedError("another store", hint="run it there")

    monkeypatch.setattr(LinkController, "turn", refuses)
    place.until(lambda: any("refused" in line for line in place.said))
    assert place.said.count(f"{ONE}: refused: another store (run it there)") == 1
