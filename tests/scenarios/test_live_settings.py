"""Settings that are changed by verb while a proxy of two processes and a monitor run: both obey, without a restart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner

from testkit.cluster import RigCluster
from testkit.verbs import Verb, delay_text
from tests.monitoring.test_webhook_told import hearing
from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import spans
from tests.scenarios.test_following_writers import until
from tests.scenarios.test_proxy_processes import all_serve
from twinshore.cli.app import app, register_verbs
from twinshore.config.model import Secret
from twinshore.kafka.clock import wall_ms
from twinshore.lab.clients import client_settings
from twinshore.lab.mirror_process import addresses
from twinshore.monitoring.core.alerts import AlarmKind
from twinshore.proxy.operations.run import format_user_table
from twinshore.state.store import open_store

OBEYED_S_MAX = 2.0
CONNECTIONS = 6  # with as many, each of two processes has some
QUOTA = 50_000
PASSWORDS = {"file": "sesame", "ann": "open sesame"}


@dataclass
class Stage:
    proxy: ProxyProcess
    folder: Path

    def ask(self, *words: str) -> str:
        register_verbs()
        done = CliRunner().invoke(app, [*words, "--settings", str(self.proxy.settings)])
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def change(self, *words: str) -> None:
        """Returns once both processes say that they go by it, which they do soon."""
        said = self.ask(*words)
        with open_store(self.proxy.url) as store:
            took_s = (wall_ms() - store.audit.rows("")[0].at_ms) / 1000
        assert "in force at 2 of 2 proxies" in said, said
        print(f"told: `{' '.join(words)}`: in force at both processes after {took_s:.2f} s")
        assert took_s < OBEYED_S_MAX

    def client(self, user: str = "file", **more: Any) -> dict[str, Any]:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user}
        return {"bootstrap.servers": self.proxy.bootstrap, **login, "sasl.password": PASSWORDS[user], **more}

    def is_let_in(self, user: str) -> bool:
        """Whether each of several connections is."""
        found = set()
        for _ in range(CONNECTIONS):
            names: list[str] = []
            client = AdminClient(self.client(user, error_cb=lambda error, names=names: names.append(error.name())))
            try:
                client.list_topics(timeout=2)
                found.add(True)
            except Exception:
                client.poll(1)
                assert "_AUTHENTICATION" in names, names
                found.add(False)
        assert len(found) == 1, "all processes say the same"
        return found.pop()

    def create(self, prefix: str, number: int) -> None:
        for one in range(CONNECTIONS):
            topic = NewTopic(f"{prefix}{number}-{one}", 1, 1)
            admin = AdminClient(self.client())
            admin.create_topics([topic])[topic.topic].result(30)

    def write(self, topic: str, records: int, size: int, client: str = "app") -> None:
        producer = Producer({**self.client(), "client.id": client, "linger.ms": 0})
        for _ in range(records):
            producer.produce(topic, b"x" * size, partition=0)
        assert producer.flush(60) == 0

    def throttled(self) -> float:
        found = self.proxy.metrics().items()
        return sum(value for name, value in found if name.startswith("twinshore_proxy_throttled"))


@pytest.fixture(scope="module")
def stage(east: RigCluster, west: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("live")
    open_store(f"sqlite:///{folder}/store.db").close()
    (folder / "password").write_text(PASSWORDS["file"])
    (folder / "ann").write_text(PASSWORDS["ann"])
    (folder / "users.toml").write_text(format_user_table("file", Secret(file=str(folder / "password"))))
    more = f'processes = 2\nsasl = ["SCRAM-SHA-512"]\nusers_file = "{folder}/users.toml"\n'
    more += '[near]\nown_topics = ["live-logs-*"]\n'
    clusters = [replace(east.cluster, site="frankfurt"), replace(west.cluster, site="paris")]
    made = ProxyProcess(folder, clusters, more=more)
    try:
        made.launch()
        all_serve(made)
        yield Stage(made, folder)
    finally:
        made.close()


def has(lab: RigCluster, prefix: str) -> int:
    topics = AdminClient(client_settings(lab.cluster)).list_topics(timeout=10).topics
    return sum(name.startswith(prefix) for name in topics)


def test_new_topics_go_where_a_verb_says(stage: Stage, east: RigCluster, west: RigCluster) -> None:
    stage.create("live-a-", 0)
    stage.change("settings", "set", 'proxy.new_topics_by_name."live-a-*"', "west")
    stage.create("live-a-", 1)
    stage.change("settings", "unset", 'proxy.new_topics_by_name."live-a-*"')
    stage.create("live-a-", 2)
    places = [(has(east, f"live-a-{number}-"), has(west, f"live-a-{number}-")) for number in range(3)]
    assert places == [(CONNECTIONS, 0), (0, CONNECTIONS), (CONNECTIONS, 0)]


def test_a_quota_of_clients(stage: Stage, east: RigCluster, unique_topic: str) -> None:
    east.create_topic(unique_topic)
    stage.write(unique_topic, 1, 1)
    before = stage.throttled()
    stage.write(unique_topic, 40, 4_000, "fast")
    assert stage.throttled() == before
    stage.change("settings", "set", "proxy.client_bytes_s", str(QUOTA))
    stage.write(unique_topic, 40, 4_000, "slow")
    slowed = stage.throttled()
    assert slowed > before
    stage.change("settings", "unset", "proxy.client_bytes_s")
    stage.write(unique_topic, 40, 4_000, "fast again")
    assert stage.throttled() == slowed


def test_a_user(stage: Stage) -> None:
    assert stage.is_let_in("file")
    assert not stage.is_let_in("ann")
    stage.change("proxy", "user", "set", "ann", "--password-file", str(stage.folder / "ann"))
    assert stage.is_let_in("ann")
    shown = stage.ask("settings", "show", "proxy.users")
    assert ('"set"' in shown, "salt" in shown) == (True, False)
    stage.change("proxy", "user", "remove", "ann")
    assert not stage.is_let_in("ann")
    assert PASSWORDS["ann"] not in stage.proxy.said()


def test_a_site(stage: Stage, east: RigCluster, west: RigCluster) -> None:
    """A topic that each site has for itself: the client's connection stays, and its writes go to its new site."""
    topic = "live-logs-x"
    for lab in (east, west):
        lab.create_topic(topic)
    producer = Producer({**stage.client(), "linger.ms": 0, "topic.metadata.refresh.interval.ms": 500})

    def ends() -> tuple[int, int]:
        return spans(east.cluster, topic, 1)[0][1], spans(west.cluster, topic, 1)[0][1]

    def write_until(grows: Callable[[tuple[int, int], tuple[int, int]], bool]) -> float:
        before, began_s = ends(), time.monotonic()
        while not grows(before, ends()):
            producer.produce(topic, b"x")
            assert producer.flush(30) == 0
            assert time.monotonic() - began_s < 30
        return time.monotonic() - began_s

    write_until(lambda before, after: after[0] > before[0])
    stage.change("settings", "set", 'near.networks."127.0.0.0/8"', "paris")
    took_s = write_until(lambda before, after: after[1] > before[1])
    stage.change("settings", "unset", 'near.networks."127.0.0.0/8"')
    back_s = write_until(lambda before, after: after[0] > before[0])
    print(f"told: a connected client writes at its new site {took_s:.2f} s after that, and back {back_s:.2f} s after")


def test_a_monitor_takes_a_threshold_and_a_webhook(
    east: RigCluster, west: RigCluster, tmp_path: Path, unique_topic: str
) -> None:
    """A topic that grows on one side only, below the threshold of the file and above that of the store."""
    with ExitStack() as stack:
        server = stack.enter_context(hearing())
        store = stack.enter_context(open_store(f"sqlite:///{tmp_path}/store.db"))
        link = {"east->west": f"topics = ['{unique_topic}']"}
        text = addresses([east.cluster, west.cluster], link, tmp_path / "store.db")
        text += delay_text(tmp_path, {"period_s": 1.0, "heartbeat_s": 0, "min_delay_latest_offset": 1_000_000})
        text += f'[delay.webhooks.duty]\nurl = "http://127.0.0.1:{server.server_port}/duty"\n'
        for lab in (east, west):
            lab.create_topic(unique_topic)
        monitor = Verb(tmp_path, "watch", text)
        stack.callback(monitor.end)
        monitor.start()
        producer = Producer(client_settings(east.cluster))

        def stands() -> bool:
            producer.produce(unique_topic, b"never replicated")
            assert producer.flush(30) == 0
            return any(row.kind == AlarmKind.END_OFFSET for row in store.delay.alarms(open_only=True))

        def change(*words: str) -> None:
            register_verbs()
            done = CliRunner().invoke(app, ["settings", *words, "--settings", str(monitor.settings)])
            assert done.exit_code == 0, (done.output, done.exception)

        until(lambda: not stands() and "the windows judge" in monitor.said, 60, "the windows judge")
        calm_s = time.monotonic() + 5
        until(lambda: stands() or time.monotonic() > calm_s, 10, "some periods pass")
        assert (stands(), server.heard) == (False, [])
        change("set", "delay.webhook", "duty")
        change("set", f'delay.latest_thresholds."{unique_topic}"', "0")
        began_s = time.monotonic()
        until(stands, 20, "the alarm rises")
        until(lambda: bool(server.heard), 20, "the webhook hears")
        took_s = time.monotonic() - began_s
        print(f"told: a new threshold and a webhook are obeyed after {took_s:.1f} s, with a period of 1 s")
        assert [body["topic"] for _, body in server.heard] == [unique_topic]
        change("unset", f'delay.latest_thresholds."{unique_topic}"')
        until(lambda: not stands(), 20, "the alarm is over")
        assert monitor.end() == 0
