"""A mirror both ways between two clusters, and switches on it: in this process, or in one that is killed at a step."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

import twinshore
from tests.scenarios.killed_at import GRACE_S, LEASE_S
from tests.scenarios.mirror_rig import Rig, settings_text, spans, until, url_in
from tests.scenarios.test_mirror_basic import fill
from tests.scenarios.test_switched_home import read
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import FIRST_TERM
from twinshore.kafka.cluster import KafkaCluster
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster
from twinshore.lab.processes import ChildProcess, start_child
from twinshore.routing.homes_topic import HomesTopic
from twinshore.runtime import lease_keeper
from twinshore.state.store import open_store

PAIR = "east<>west"
# A switch waits for a sign of life of the mirror: it gives one four times in the length of its lease.
QUICK = {"tasks_per_link": 1, "lease_s": 4}


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever goes on after somebody was killed waits for his lease."""
    monkeypatch.setattr(lease_keeper, "LEASE_S", LEASE_S)
    monkeypatch.setattr(lease_keeper, "GRACE_S", GRACE_S)


def verdict_in(text: str) -> str:
    """The line that says how it ended; what to do next may stand behind it."""
    lines = text.strip().splitlines()
    return next((line for line in reversed(lines) if line.startswith(("done: ", "turned back: "))), lines[-1])


def forced(words: Sequence[str]) -> list[str]:
    """The same command, where the old home may answer and is left all the same."""
    if not {"--force", "--yes"} <= set(words):
        return list(words)
    to = words[words.index("--to") + 1]
    return [*words, "--alive", "east" if to == "west" else "west"]


@dataclass(frozen=True)
class Said:
    """How a command ended. `text` holds all that it wrote, and its error."""

    code: int
    text: str

    @property
    def last(self) -> str:
        return verdict_in(self.text)


@dataclass
class SwitchRig:
    """One topic of three partitions between `east` and `west`."""

    rig: Rig
    topic: str
    east: LabCluster
    west: LabCluster
    partitions: int = 3

    @property
    def settings(self) -> Path:
        return self.rig.process.settings

    def switch(self, *words: str) -> Said:
        """`twinshore switch` in this process."""
        register_verbs()
        result = CliRunner().invoke(app, ["switch", *forced(words), "--settings", str(self.settings)])
        error = result.exception
        if error is None or isinstance(error, SystemExit):
            return Said(result.exit_code, result.output)
        hint = getattr(error, "hint", "")
        return Said(result.exit_code, "\n".join([result.output, f"{type(error).__name__}: {error}", hint]).strip())

    def move(self, to: str, *words: str) -> Said:
        return self.switch("run", self.topic, "--to", to, "--yes", *words)

    def begin(self, *words: str, module: Sequence[str] = ("twinshore.cli",)) -> tuple[ChildProcess, Path]:
        """`twinshore switch` in a process of its own, and where it writes."""
        root = Path(twinshore.__file__).resolve().parent.parent.parent
        log = self.settings.parent / f"switch-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", *module, "switch", *forced(words), "--settings", str(self.settings)]
        paths = {"PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONUNBUFFERED": "1"}
        return start_child(command, folder=self.settings.parent, log=log, environment=paths), log

    def killed(self, step: str, when: str, *words: str) -> str:
        """What it had said when it was killed."""
        child, log = self.begin(*words, module=("tests.scenarios.killed_at", step, when))
        ended(child, log)
        said = log.read_text(encoding="utf-8")
        assert child.exit_code == -9, f"{step}, {when}: it ended with {child.exit_code}\n{said}"
        return said

    def home(self) -> tuple[str, int]:
        """Where the store says the topic is at home, and its term."""
        homes = json.loads(self.rig.verb("link", "homes", "--json"))["topics"]
        return next(((one["home"], one["term"]) for one in homes if one["topic"] == self.topic), ("east", 1))

    def sides(self) -> tuple[LabCluster, LabCluster]:
        """Where the topic is at home, and where its twin is."""
        return (self.east, self.west) if self.home()[0] == "east" else (self.west, self.east)

    def record(self) -> dict[str, Any]:
        """Of the switch that was begun last."""
        found: list[dict[str, Any]] = json.loads(self.switch("history", "--json").text)
        return found[0]

    def ends(self, lab: LabCluster) -> list[int]:
        return [end for _, end in spans(lab.cluster, self.topic, self.partitions)]

    def level(self) -> list[int]:
        """Where both homes end, once that is at the same place."""
        until(lambda: self.ends(self.east) == self.ends(self.west), 60, "both homes end alike", self.rig)
        return self.ends(self.east)

    def same(self, isolation: str = "read_committed") -> None:
        """Both homes hold the same, at the same offsets; what was aborted is nowhere seen."""
        self.level()
        one, other = (
            [read(lab, self.topic, number, isolation) for number in range(self.partitions)]
            for lab in (self.east, self.west)
        )
        assert one == other

    def settled(self, home: str, term: int, labs: Sequence[LabCluster] = ()) -> None:
        """Nothing of a switch is left: no claim, nobody held, one home of which store and clusters say the same."""
        with open_store(url_in(self.rig.folder)) as store:
            assert [row for row in store.topics_in_switch.of(PAIR) if row.topic == self.topic] == []
            assert store.switches.all(open_only=True) == ()
        # A link that has just begun writes the first home down with its next look.
        until(lambda: self.home() == (home, term), 30, f"at home on {home} in term {term}", self.rig)
        for lab in labs or (self.east, self.west):
            with closing(KafkaCluster(lab.cluster)) as kafka:
                notes = HomesTopic(kafka)
                line = notes.read().get(self.topic)
                # The last test's records are deleted: there may be none, or a first one by a link that began since.
                said = (line.home, line.term, line.state) if line else (home, term, "settled")
                terms = {term, FIRST_TERM} if line and line.set_by.startswith("link ") else {term}
                assert said in {(home, one, "settled") for one in terms}, f"{lab.name}: {line}"
                assert notes.log.holder(self.topic) is None, f"{lab.name}: {notes.log.holder(self.topic)}"


@contextmanager
def carried(
    east: LabCluster,
    west: LabCluster,
    topic: str,
    folder: Path,
    *,
    more: Sequence[str] = (),
    mirror: Mapping[str, object] = QUICK,
    sections: str = "",
    store: str = "",
) -> Iterator[SwitchRig]:
    """The topic is at home on east, its twin is level, and a mirror runs, with both links, which carry `more`.
    `sections`: of the settings, behind that of the mirror."""
    east.create_topic(topic, partitions=3)
    for number in range(3):
        fill(east, topic, 10, partition=number)
    names = "|".join([topic, *more])
    links = {"east->west": names, "west->east": names}
    text = settings_text(folder, [east.cluster, west.cluster], links, mirror=mirror, store=store)
    made = Rig(folder, text + sections, store=store)
    made.process.start()
    try:
        until(lambda: spans(west.cluster, topic, 3) == [(0, 10)] * 3, 120, "carried", made)
        yield SwitchRig(made, topic, east, west)
    finally:
        made.process.end()


def ended(child: ChildProcess, log: Path, within_s: float = 180.0) -> int:
    """The exit code of a process, once it has ended by itself."""
    until_s = time.monotonic() + within_s
    while child.alive():
        assert time.monotonic() < until_s, log.read_text(encoding="utf-8")
        time.sleep(0.02)
    return child.exit_code or 0


def turned_back(rig: SwitchRig, said: Said, home: tuple[str, int], why: str = "") -> None:
    """The topic is at home where it was, in the same term, and goes on from there."""
    assert (said.code, said.last.startswith("turned back: ")) == (1, True), said.text
    assert why in said.last, said.text
    assert said.last.endswith(f"{rig.topic} is at home on {home[0]}")
    rig.settled(*home)
    fill(rig.sides()[0], rig.topic, 1, partition=1)
    rig.same()


def transactional(lab: LabCluster, name: str, **settings: Any) -> Producer:
    producer = Producer({**client_settings(lab.cluster), "transactional.id": name, **settings})
    producer.init_transactions(30)
    return producer
