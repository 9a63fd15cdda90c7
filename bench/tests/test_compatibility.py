"""From what clients could do to the page; how a step is judged; a client's process that hangs or dies."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bench.clients import moving, trying
from bench.clients.client import LACKS, NO, REFUSED, YES, Job, Lacks, Part, WentWrong, Writer
from bench.clients.trying import outcome, settle
from bench.kit import makes
from bench.kit.makes import MAKES, Outcome, tried
from bench.kit.programs import SOURCES, NoToolError, program
from bench.show.compatibility import Cell, Compatibility, page_of, with_tools

JOB = Job("nowhere:1", "a", "b", "made", "job", ("metadata",))


@dataclass
class Broker:
    """What all clients see, perhaps with a mistake of its own: it `loses` the last record of many."""

    topics: dict[str, list[str]] = field(default_factory=lambda: {"a": [], "b": []})
    loses: bool = False


@dataclass
class Plain:
    """A client that works, as far as its broker does."""

    broker: Broker
    refuses: str = ""

    def look(self) -> tuple[set[str], int]:
        return set(self.broker.topics), 2

    def produce(self, topic: str, values: Sequence[str], *_: Any, **__: Any) -> None:
        if self.refuses:
            raise ConnectionError(self.refuses)
        self.broker.topics[topic] += values[:-1] if self.broker.loses else values

    def read(self, topic: str, *_: Any) -> set[str]:
        return set(self.broker.topics[topic])

    def transact(self, topic: str, values: Sequence[str], *_: Any, **__: Any) -> None:
        self.broker.topics[topic] += values

    def place(self, *_: Any) -> int:
        return 5

    def member(self, *_: Any) -> Reader:
        raise Lacks("it has no groups")

    def writer(self, *_: Any) -> Writer:
        raise Lacks("it has no producers that live on")

    def describe(self) -> tuple[str, int]:
        return "", 2

    def create(self, topic: str) -> None:
        self.broker.topics[topic] = []

    def ends(self, topics: Sequence[str]) -> dict[str, int]:
        return {topic: len(self.broker.topics[topic]) for topic in topics}

    def groups(self) -> set[str]:
        return set()


@dataclass
class Reader:
    held: set[Part]
    says: list[str] = field(default_factory=list)

    def poll(self, _: float) -> list[str]:
        return self.says

    def parts(self) -> set[Part]:
        return self.held

    def commit(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Moved(Plain):
    """One whose topic moves; it `doubles` what it commits."""

    doubles: bool = False

    def writer(self, *_: Any) -> Moved:
        return self

    def write(self, values: Sequence[str]) -> None:
        self.produce("a", [*values, *(values[:1] if self.doubles else ())])

    def member(self, *_: Any) -> Reader:
        return Following(set(), broker=self.broker)

    def close(self) -> None: ...


@dataclass
class Following(Reader):
    broker: Broker = field(default_factory=Broker)

    def poll(self, _: float) -> list[str]:
        found = self.broker.topics["a"][len(self.says) :]
        self.says += found
        return found


def of(step: str, client: Plain) -> tuple[str, str]:
    return outcome(client, JOB, step, lambda error: str(error) if isinstance(error, ConnectionError) else None)


def test_a_step_is_judged_by_what_is_there_behind_it() -> None:
    works = Plain(Broker())
    for step in ("metadata", "acks=all", "create topic", "list offsets"):
        assert of(step, works) == (YES, "")
    assert of("acks=1", Plain(Broker(loses=True)))[0] == NO
    assert of("acks=1", Plain(Broker(), refuses="not today")) == (REFUSED, "not today")
    assert of("group, eager", works) == (LACKS, "it has no groups")
    assert of("transaction", works)[0] == NO
    assert of("describe cluster", works)[0] == NO


def test_what_is_acknowledged_while_a_topic_moves_is_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "WITHIN_S", 0.5)
    moves = ((sys.executable, "-c", "pass"),)

    def came(step: str, client: Moved, moves: tuple[tuple[str, ...], ...] = moves) -> str:
        return outcome(client, replace(JOB, moves=moves), step, str)[0]

    group, transactions = "group through a switch and a move of groups", "transactions through a switch"
    assert came(group, Moved(Broker())) == came(transactions, Moved(Broker())) == YES
    assert came(group, Moved(Broker(), doubles=True)) == YES
    assert came(transactions, Moved(Broker(), doubles=True)) == NO
    assert came(group, Moved(Broker(loses=True))) == came(transactions, Moved(Broker(loses=True))) == NO
    assert came(group, Moved(Broker()), ((sys.executable, "-c", "exit(1)"),)) == NO


def test_a_group_has_settled_once_each_partition_is_with_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "WITHIN_S", 0.0)
    one, two = ("a", 0), ("a", 1)
    assert settle([Reader({one}, ["x"]), Reader({two})], {one, two}, lambda seen: "x" in seen) == {"x"}
    for held in (({one, two}, {two}), ({one, two}, set[Part]()), ({one}, {one})):
        with pytest.raises(WentWrong, match="members hold"):
            settle([Reader(each) for each in held], {one, two}, lambda _: True)


def test_a_process_that_dies_or_hangs_fails_its_step_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import json, sys, time\n"
        "steps = json.loads(sys.argv[1])['job']['steps']\n"
        "for step in steps:\n"
        "    if step == 'dies': sys.exit('it is dead')\n"
        "    if step == 'hangs': time.sleep(60)\n"
        "    print(json.dumps({'step': step, 'outcome': 'yes', 'says': ''}), flush=True)\n"
    )

    class Ready:
        def __enter__(self) -> tuple[list[str], list[str], dict[str, object]]:
            return [sys.executable, "-c", text], [], {}

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(makes, "_ready", lambda _: Ready())
    monkeypatch.setattr(makes, "STEP_S", 2.0)
    job = Job("nowhere:1", "a", "b", "made", "job", ("one", "dies", "two", "hangs", "three"))
    assert list(tried(MAKES[0], job)) == [
        Outcome("one", YES),
        Outcome("dies", NO, "it is dead"),
        Outcome("two", YES),
        Outcome("hangs", NO, "it does not end"),
        Outcome("three", YES),
    ]


def test_the_page_has_each_sentence_once_and_says_whose_doing_it_is() -> None:
    told = "no | such `thing` (after 3 ms)"
    cells = (Cell("metadata", YES), Cell("transaction elsewhere", REFUSED, told), Cell("static member", LACKS))
    odd = (
        Cell("metadata", NO, "it sees none", YES),
        Cell("transaction elsewhere", REFUSED, told.replace("3", "17")),
        cells[2],
    )
    found = Compatibility("2 cores", ("4.3.1", "3.9.2"), (("Java 2", cells), ("Java 3", odd)), (Outcome("x.sh", YES),))
    page = page_of(found)
    assert "| client | metadata | transaction elsewhere | static member |" in page
    assert "| Java 2 | yes | refused (1) | - |" in page
    assert "| Java 3 | **no** (2) | refused (1) | - |" in page
    assert "1. no / such 'thing'\n2. it sees none\n" in page
    assert "| x.sh | yes |" in page
    assert json.loads(found.to_json())["fell_short"] == 1
    anew = with_tools(page, "4.3.1", (Outcome("x.sh", NO, "it is | not"), Outcome("y.sh", YES)))
    other = page.replace("| x.sh | yes |", "| x.sh | **no**: it is / not |\n| y.sh | yes |")
    assert anew == other.replace('"tools_tried": 1', '"tools_tried": 2')
    assert not found.holds()


def test_a_client_that_cannot_be_had_has_a_row_and_is_counted() -> None:
    rows = (("Java 2", (Cell("metadata", YES), Cell("static member", YES, "told of x"))), ("sarama 1", ()))
    found = Compatibility("2 cores", ("4.3.1", "3.9.2"), rows, (), {"sarama 1": "no go here"})
    page = page_of(found)
    assert "| Java 2 | yes | yes (1) |" in page
    assert "| sarama 1 | not tried: no go here |  |" in page
    told = json.loads(found.to_json())
    assert (told["clients"], told["not_tried"]) == (1, 1)
    assert found.holds()


def test_a_tool_that_is_not_here_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoToolError, match=r"\Ano go here\Z"):
        program("go", "sarama")


def test_the_versions_of_programs_are_those_that_are_built() -> None:
    pins = {
        "franz-go": ("go/go.mod", "twmb/franz-go v{}\n"),
        "sarama": ("go/go.mod", "IBM/sarama v{}\n"),
        "kafka-go": ("go/go.mod", "segmentio/kafka-go v{}\n"),
        "kafkajs": ("kafkajs/package.json", '"kafkajs": "{}"'),
        "rskafka": ("rskafka/Cargo.toml", '"={}"'),
    }
    made = {make.name: make.version for make in MAKES if make.tool}
    assert made.keys() == pins.keys()
    for name, (file, pin) in pins.items():
        assert pin.format(made[name]) in (SOURCES / file).read_text()


def test_what_fails_without_the_proxy_too_is_none_of_its_doing() -> None:
    assert Cell("metadata", NO, "", YES).falls_short
    assert Cell("metadata", REFUSED, "", YES).falls_short
    assert not Cell("metadata", NO, "", REFUSED).falls_short
    assert not Cell("transaction elsewhere", REFUSED, "", YES).falls_short
    assert Cell("group of the new protocol", REFUSED, "", YES).falls_short
    assert Cell("group of the new protocol", NO, "", YES).falls_short


def test_clients_are_of_six_versions_of_java_and_three_of_librdkafka() -> None:
    names = [make.name for make in MAKES]
    assert (names.count("Java"), names.count("confluent-kafka")) == (6, 3)
    assert len({make.title for make in MAKES}) == len(MAKES)
    assert all(bool(make.wheel or make.tool) == (make.name != "Java") for make in MAKES)
