"""What a client refuses it refuses before it begins: no thread of its own is left, and no file."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from twinshore.client import AsyncFailoverProducer, FailoverConsumer, FailoverPairConsumer, FailoverProducer
from twinshore.client.discovery.config_service import Pushes, PushFile
from twinshore.config.errors import ConfigError, RefusedError

EAST: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
WEST: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:2", "log_level": 0}
BOTH = {"east": EAST, "west": WEST}
WRONG = {"east": EAST, "west": {**WEST, "linger.ms": "soon", "fetch.min.bytes": "few"}}
GROUP = {"group.id": "ours"}
Made = Callable[[Any, Path], object]

# With the code of the error, or a part of its message.
PRODUCERS: dict[str, tuple[Made, type[Exception], str]] = {
    "when_full": (
        lambda to, _: FailoverProducer({}, clusters=to, when_full="later"),  # type: ignore[arg-type]
        ConfigError,
        "when-full-invalid",
    ),
    "kept_max": (lambda to, _: FailoverProducer({}, clusters=to, kept_max=0), ConfigError, "argument-too-low"),
    "no lease": (lambda to, _: FailoverProducer({}, clusters=to, lease_s=0), ConfigError, "lease-out-of-range"),
    "lease": (lambda to, _: FailoverProducer({}, clusters=to, lease_s=61), ConfigError, "lease-out-of-range"),
    "topics": (lambda to, _: FailoverProducer({}, clusters=to, topics="orders"), TypeError, "as a list of names"),
    "topics, none": (lambda to, _: FailoverProducer({}, clusters=to, topics=[]), ConfigError, "no-topics"),
    "topics, a star before": (
        lambda to, _: FailoverProducer({}, clusters=to, topics=["*els"]),
        ConfigError,
        "star-not-last",
    ),
    "wait": (lambda to, _: FailoverProducer({}, clusters=to, max_block_s=-1), ConfigError, "argument-too-low"),
    "lease in words": (
        lambda to, _: FailoverProducer({}, clusters=to, lease_s="5"),  # type: ignore[arg-type]
        ConfigError,
        "lease-out-of-range",
    ),
    "recognise": (
        lambda to, _: FailoverProducer({}, clusters=to, recognise="yes"),  # type: ignore[arg-type]
        ConfigError,
        "argument-invalid",
    ),
    "bound without a spool": (
        lambda to, _: FailoverProducer({}, clusters=to, spool_bytes_max=1 << 20),
        ConfigError,
        "spool-not-named",
    ),
    "somebody's folder": (
        lambda to, at: FailoverProducer({}, clusters=to, spool=at),
        RefusedError,
        "spool-with-other-files",
    ),
    "bootstrap": (
        lambda _, __: FailoverProducer({}, clusters={"east": {"bootstrap.servers": ["127.0.0.1:1"]}}),
        ConfigError,
        "bootstrap-invalid",
    ),
    "port": (
        lambda _, __: FailoverProducer({}, clusters={"east": {"bootstrap.servers": "127.0.0.1:99999999"}}),
        ConfigError,
        "is not host:port",
    ),
    "least": (
        lambda to, at: FailoverProducer({}, clusters=to, spool=at / "spool", spool_bytes_max=1),
        ConfigError,
        "argument-too-low",
    ),
    "no folder": (
        lambda to, at: FailoverProducer({}, clusters=to, spool=at / "push.json" / "spool"),
        ConfigError,
        "spool-unreadable",
    ),
    "async": (lambda to, _: AsyncFailoverProducer({}, clusters=to, kept_max=0), ConfigError, "argument-too-low"),
    "consumer's lease": (
        lambda to, _: FailoverConsumer(GROUP, clusters=to, lease_s=61),
        ConfigError,
        "lease-out-of-range",
    ),
    "no group": (lambda to, _: FailoverConsumer({}, clusters=to), ConfigError, "group.id is not set"),
    "pair without a group": (
        lambda to, _: FailoverPairConsumer({}, clusters=to),
        ConfigError,
        "group.id is not set",
    ),
    "cluster": (
        lambda to, _: FailoverPairConsumer(GROUP, clusters=to, cluster="south"),
        ConfigError,
        "no cluster south",
    ),
}


@pytest.fixture
def nothing_begins(tmp_path: Path) -> Callable[[Callable[[], object]], None]:
    """Checks that what a call had begun when it raised ends by itself, soon."""
    (tmp_path / "push.json").write_text(push(BOTH))

    def found() -> tuple[set[str], set[Path]]:
        return {one.name for one in threading.enumerate()}, {*tmp_path.rglob("*")}

    before = found()

    def check(call: Callable[[], object]) -> None:
        call()
        until_s = time.monotonic() + 10
        while found() != before and time.monotonic() < until_s:
            time.sleep(0.05)
        assert found() == before

    return check


def push(clusters: dict[str, dict[str, Any]], home: str = "east") -> str:
    return json.dumps({"clusters": clusters, "home": home})


def refused(made: Made, clusters: object, at: Path, error: type[Exception], says: str) -> Callable[[], object]:
    def call() -> None:
        with pytest.raises(error) as raised:
            made(clusters, at)
        assert says in f"{getattr(raised.value, 'code', '')}: {raised.value}"

    return call


@pytest.mark.parametrize("pushed", [False, True])
@pytest.mark.parametrize("what", list(PRODUCERS))
def test_what_is_set_wrongly_is_refused_before_anything_begins(
    nothing_begins: Callable[[Callable[[], object]], None], tmp_path: Path, what: str, pushed: bool
) -> None:
    made, error, says = PRODUCERS[what]
    clusters = Pushes(PushFile(tmp_path / "push.json")) if pushed else BOTH
    nothing_begins(refused(made, clusters, tmp_path, error, says))


def test_a_producer_that_no_thread_is_left_for_leaves_its_spool_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("twinshore.client.discovery.routing_topic.HomeTracker.start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            FailoverProducer({}, clusters=BOTH, spool=tmp_path)
    FailoverProducer({}, clusters=BOTH, spool=tmp_path).kill()


@pytest.mark.parametrize("made", [FailoverProducer, FailoverConsumer, FailoverPairConsumer])
def test_settings_of_a_cluster_to_which_a_topic_may_move_are_refused_at_once(
    nothing_begins: Callable[[Callable[[], object]], None], tmp_path: Path, made: Callable[..., object]
) -> None:
    """Not years later, in a switch."""
    config = {} if made is FailoverProducer else GROUP
    nothing_begins(refused(lambda to, _: made(config, clusters=to), WRONG, tmp_path, KafkaException, "Invalid value"))


@pytest.mark.parametrize(
    ("clusters", "named", "says"),
    [
        ({**BOTH, "south": EAST}, "", "two clusters, and 3"),
        ({"east": EAST, "south": EAST}, "west", "east, south"),
        (WRONG, "", "this push is not taken"),
    ],
)
def test_pushed_clusters_of_which_no_pair_can_be_made_are_refused_in_a_sentence(
    nothing_begins: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    clusters: dict[str, dict[str, Any]],
    named: str,
    says: str,
) -> None:
    (tmp_path / "push.json").write_text(push(clusters))
    pushes = Pushes(PushFile(tmp_path / "push.json"), last_good=tmp_path / "last")
    made: Made = lambda to, _: FailoverPairConsumer(GROUP, clusters=to, cluster=named)  # noqa: E731
    nothing_begins(refused(made, pushes, tmp_path, ConfigError, says))


def test_a_push_of_other_clusters_than_the_pair_s_is_not_taken_nor_kept_for_the_next_start(
    tmp_path: Path, log_lines: LogLines
) -> None:
    path = tmp_path / "push.json"
    path.write_text(push(BOTH))
    pushes = Pushes(PushFile(path), last_good=tmp_path / "last")
    with FailoverPairConsumer(GROUP, clusters=pushes) as reader:
        kept = (tmp_path / "last").read_bytes()
        part = path.with_suffix(".part")
        part.write_text(push({"east": EAST, "south": EAST}))
        part.replace(path)
        until_s = time.monotonic() + 20
        while not log_lines and time.monotonic() < until_s:
            time.sleep(0.01)
        assert mentions(log_lines[0], "west", "east, south")
        assert (reader.where(), (tmp_path / "last").read_bytes()) == ("east", kept)
    path.unlink()
    with FailoverPairConsumer(GROUP, clusters=Pushes(PushFile(path), last_good=tmp_path / "last")) as reader:
        assert reader.where() == "east"


def test_a_push_that_was_kept_by_an_application_that_is_another_one_now_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "push.json"
    path.write_text(push({**BOTH, "south": EAST}))
    with FailoverConsumer(GROUP, clusters=Pushes(PushFile(path), last_good=tmp_path / "last")):
        path.unlink()
    with raises(ConfigError, "client.no-push"):
        FailoverPairConsumer(GROUP, clusters=Pushes(PushFile(path), last_good=tmp_path / "last"))
