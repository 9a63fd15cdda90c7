"""Real clients speak TLS and log in at the proxy, which does both towards brokers, as its own user or as theirs."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from testkit.access import LabSecurity
from testkit.certificates import CertificateAuthority, replace_secret_file
from testkit.clients import add_acl
from testkit.cluster import RigCluster
from tests.conftest import ClusterFactory
from tests.kafka.protocol.serving.java_clients import java_clients
from tests.proxy.served import ProxyProcess, proxy_before
from twinshore.config.model import SaslMechanism
from twinshore.kafka.protocol.sasl import derive_scram_keys
from twinshore.lab.jars import KAFKA_NEWEST, KAFKA_OLDEST

COUNT = 50
SESSION_S = 3
PASSWORD, OTHERS = "sesame", "open sesame"


@pytest.fixture(scope="module")
def vault() -> Iterator[RigCluster]:
    """Asks for TLS and SCRAM, says how long a login lasts, and lets `app` write and read what is called app-..."""
    settings = {"connections.max.reauth.ms": str(1000 * SESSION_S)}
    with RigCluster(
        "vault",
        security=LabSecurity.SASL_SCRAM_512,
        tls=True,
        authorizer=True,
        users=["app"],
        settings=settings,
        jvm_flags=("-XX:TieredStopAtLevel=1",),
    ) as lab:
        for topic in ("app-orders", "others", "large"):
            lab.create_topic(topic)
        for operation in ("write", "read"):
            add_acl(lab.cluster, "app", operation, "topic", "app-", prefixed=True)
        add_acl(lab.cluster, "app", "read", "group", "app-", prefixed=True)
        yield lab


@dataclass
class Served:
    """A proxy that speaks TLS, before a cluster that asks for a login and one that does not."""

    proxy: ProxyProcess
    authority: CertificateAuthority
    folder: Path

    def client(self, user: str, password: str, mechanism: str = "PLAIN", **more: object) -> dict[str, object]:
        own = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.authority.ca_file), "log_level": 2}
        own |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return {"bootstrap.servers": self.proxy.bootstrap, "reconnect.backoff.max.ms": 500, **own, **more}


@pytest.fixture(scope="module")
def served(vault: RigCluster, east: RigCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("logins")
    authority = CertificateAuthority(folder, "proxy")
    pair = authority.issue("proxy")
    east.create_topic("app-bills")
    replace_secret_file(folder / "alice", PASSWORD.encode())
    salted = derive_scram_keys(OTHERS, SaslMechanism.SCRAM_SHA_512, b"of the sea", 4096).text
    (folder / "users.toml").write_text(
        f'[alice]\npassword_file = "{folder}/alice"\n[bob]\nscram_sha_512 = "{salted}"\n'
    )
    more = f'certificate_file = "{pair.cert_file}"\nkey_file = "{pair.key_file}"\n'
    more += f'sasl = ["SCRAM-SHA-512", "PLAIN"]\nusers_file = "{folder}/users.toml"\n'
    more += 'credentials_else = "own"\n'
    more += '[proxy.credentials.alice.clusters.vault]\nusername = "app"\n'
    more += f'password_file = "{vault.cluster_as("app").security.password.file}"\n'
    with proxy_before(folder, vault.cluster, east.cluster, more=more) as proxy:
        yield Served(proxy, authority, folder)


def write(settings: dict[str, object], topic: str, count: int = COUNT, pause_s: float = 0.0) -> list[object]:
    """What became of so many records: None for each that is in the log."""
    producer = Producer({"message.timeout.ms": 20_000, **settings})
    found: list[object] = []

    def heard(error: KafkaError | None, _: Message) -> None:
        found.append(error and error.name())

    for number in range(count):
        producer.produce(topic, str(number), on_delivery=heard)
        producer.poll(0)
        time.sleep(pause_s)
    assert producer.flush(40) == 0
    return found


def read(settings: dict[str, object], group: str, topics: list[str], count: int) -> int:
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, **own})
    consumer.subscribe(topics)
    found, until_s = 0, time.monotonic() + 60
    try:
        while found < count and time.monotonic() < until_s:
            for message in consumer.consume(500, timeout=1):
                assert message.error() is None, message.error()
                found += 1
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [
        ("alice", PASSWORD, "PLAIN"),
        ("alice", PASSWORD, "SCRAM-SHA-512"),
        ("bob", OTHERS, "SCRAM-SHA-512"),
        ("bob", OTHERS, "PLAIN"),
    ],
)
def test_who_logs_in_writes_and_reads_on_clusters_with_and_without_a_login(
    served: Served, user: str, password: str, mechanism: str
) -> None:
    client = served.client(user, password, mechanism)
    topics = ["app-orders", "app-bills"]
    for topic in topics:
        assert write(client, topic) == [None] * COUNT
    assert read(client, f"app-{user}-{mechanism}", topics, 2 * COUNT) >= 2 * COUNT


def test_a_principal_has_the_rights_of_whom_it_is_led_on_as(served: Served) -> None:
    assert write(served.client("bob", OTHERS), "others", 1) == [None], "bob comes in as the cluster's own user"
    assert write(served.client("alice", PASSWORD), "others", 1) == ["TOPIC_AUTHORIZATION_FAILED"]


def test_a_login_upstream_is_made_anew_before_it_ends_and_nobody_notices(served: Served) -> None:
    before = served.proxy.metrics()
    pauses = 2.5 * SESSION_S / 0.1
    assert write(served.client("alice", PASSWORD), "app-orders", int(pauses), 0.1) == [None] * int(pauses)
    after = served.proxy.metrics()
    for name in ("connections_closed", "brokers_lost"):
        assert after[f"twinshore_proxy_{name}_total"] == before[f"twinshore_proxy_{name}_total"], served.proxy.said()


def test_large_records_cross_both_handshakes_as_they_were(served: Served) -> None:
    client = served.client("bob", OTHERS, "SCRAM-SHA-512")
    values = [random.Random(number).randbytes(900_000) for number in range(40)]
    producer = Producer({**client, "linger.ms": 5, "enable.idempotence": True})
    for value in values:
        producer.produce("large", value)
    assert producer.flush(60) == 0
    consumer = Consumer({**client, "group.id": "app-large", "auto.offset.reset": "earliest"})
    consumer.subscribe(["large"])
    found: list[str | bytes | None] = []
    until_s = time.monotonic() + 60
    while len(found) < len(values) and time.monotonic() < until_s:
        found += [message.value() for message in consumer.consume(3, timeout=1)]
        time.sleep(0.05)  # a reader that is slower than its brokers
    consumer.close()
    assert found == values


def test_a_wrong_password_is_an_error_of_authentication(served: Served) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        heard: list[str] = []
        own = served.client("alice", "wrong", mechanism, error_cb=lambda error, heard=heard: heard.append(error.name()))
        producer = Producer(own)
        until_s = time.monotonic() + 20
        while "_AUTHENTICATION" not in heard:
            assert time.monotonic() < until_s, heard
            producer.poll(0.1)
    for why in (
        "there is no user 'alice' with this password",
        "user 'alice': there is no such user, or the password is wrong",
    ):
        # Behind its answer, which the client has first.
        wait_until(partial(served.proxy.has_said, f"its login is refused: {why}"))
    assert served.proxy.metrics()["twinshore_proxy_logins_refused_total"] >= 2


def test_a_certificate_is_exchanged_under_clients_and_one_that_does_not_fit_is_not(served: Served) -> None:
    client = served.client("bob", OTHERS)
    producer = Producer({**client, "message.timeout.ms": 20_000})
    producer.produce("app-bills", "before")
    assert producer.flush(30) == 0
    hung_up = hung_up_on(served)
    address = ("127.0.0.1", served.proxy.port)
    shown = ssl.get_server_certificate(address)
    served.authority.issue("proxy")
    wait_until(lambda: ssl.get_server_certificate(address) != shown)
    renewed = ssl.get_server_certificate(address)
    replace_secret_file(served.folder / "proxy.key.pem", served.authority.issue("other").key_file.read_bytes())
    wait_until(lambda: "what was read before stays in force" in served.proxy.said())
    assert ssl.get_server_certificate(address) == renewed
    served.authority.issue("proxy")
    wait_until(lambda: ssl.get_server_certificate(address) != renewed)
    producer.produce("app-bills", "behind it")
    assert producer.flush(30) == 0
    assert write(client, "app-bills", 1) == [None]
    assert hung_up_on(served) == hung_up


def hung_up_on(served: Served) -> list[str]:
    """But for whoever gave a wrong password in a test before: some hear of it late."""
    lines = [line for line in served.proxy.said().splitlines() if "was disconnected" in line]
    return [line for line in lines if "its login is refused" not in line]


def wait_until(so: Callable[[], bool], within_s: float = 20) -> None:
    until_s = time.monotonic() + within_s
    while not so():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def test_clients_that_speak_no_tls_or_do_not_trust_the_proxy_are_told_of(served: Served, tmp_path: Path) -> None:
    plain = Producer({"bootstrap.servers": served.proxy.bootstrap, "log_level": 0})
    stranger = CertificateAuthority(tmp_path, "stranger")
    wary = Producer({**served.client("bob", OTHERS), "ssl.ca.location": str(stranger.ca_file), "log_level": 0})
    until_s = time.monotonic() + 20
    for says in ("it speaks no TLS, and this port does", "it does not accept the proxy's certificate, or its TLS: "):
        while says not in served.proxy.said():
            assert time.monotonic() < until_s, served.proxy.said()
            plain.poll(0.05)
            wary.poll(0.05)


def test_a_new_user_comes_in_without_a_restart(served: Served) -> None:
    replace_secret_file(served.folder / "carol", b"shell")
    users = served.folder / "users.toml"
    users.write_text(f'{users.read_text()}[carol]\npassword_file = "{served.folder}/carol"\n')
    wait_until(lambda: "[proxy] users_file: the files have changed, and are in force" in served.proxy.said())
    assert write(served.client("carol", "shell"), "app-bills", 1) == [None]


def test_clusters_say_who_may_come_in_where_the_proxy_has_no_users(vault: RigCluster, tmp_path: Path) -> None:
    pair = (authority := CertificateAuthority(tmp_path, "proxy")).issue("proxy")
    more = f'certificate_file = "{pair.cert_file}"\nkey_file = "{pair.key_file}"\n'
    with proxy_before(tmp_path, vault.cluster, more=f'{more}sasl = ["PLAIN"]\ncredentials = "same"\n') as proxy:
        same = Served(proxy, authority, tmp_path)
        password = vault.cluster_as("app").security.password.read()
        assert write(same.client("app", password), "app-orders", 5) == [None] * 5
        assert write(same.client("app", password), "others", 1) == ["TOPIC_AUTHORIZATION_FAILED"]
        wrong = same.client("app", "wrong") | {"message.timeout.ms": 3000}
        assert write(wrong, "app-orders", 1) == ["_MSG_TIMED_OUT"]
        assert "its login is refused: vault 127.0.0.1:" in proxy.said()


@pytest.mark.long
@pytest.mark.parametrize("version", [KAFKA_OLDEST, KAFKA_NEWEST])
def test_java_s_clients_log_in(served: Served, vault: RigCluster, version: str) -> None:
    for user, password, mechanism in (("alice", PASSWORD, "SCRAM-SHA-512"), ("bob", OTHERS, "PLAIN")):
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(served.authority.ca_file),
            "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required"
            f' username="{user}" password="{password}";',
        }
        topic = f"app-java-{version}-{user}"
        vault.create_topic(topic)
        with java_clients(version) as java:
            values = [f"{user} {number}" for number in range(20)]
            java.produce(served.proxy.bootstrap, topic, values, settings)
            assert java.consume(served.proxy.bootstrap, topic, 20, 30, settings) == values


@pytest.mark.long
def test_clients_with_certificates_reach_clusters_that_ask_for_certificates_and_for_tokens(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    certified = cluster_factory("certified", security=LabSecurity.MTLS, heap_mb=256)
    token = cluster_factory("token", security=LabSecurity.SASL_OAUTHBEARER, tls=True, heap_mb=256)
    certified.create_topic("app-certified")
    token.create_topic("app-token")
    token.access.renew_token("admin", life_s=15)
    pair = (authority := CertificateAuthority(tmp_path, "proxy")).issue("proxy")
    more = (
        f'certificate_file = "{pair.cert_file}"\nkey_file = "{pair.key_file}"\nclient_ca_file = "{authority.ca_file}"\n'
    )
    with proxy_before(tmp_path, certified.cluster, token.cluster, more=more) as proxy:
        own = authority.issue("app")
        bare = {"bootstrap.servers": proxy.bootstrap, "log_level": 0, "security.protocol": "SSL"}
        bare["ssl.ca.location"] = str(authority.ca_file)
        client = {**bare, "ssl.certificate.location": str(own.cert_file), "ssl.key.location": str(own.key_file)}
        assert write(client, "app-certified") == [None] * COUNT
        token.access.renew_token("admin")
        lost = proxy.metrics()["twinshore_proxy_brokers_lost_total"]
        # Beyond the life of the token that it began with.
        assert write(client, "app-token", 200, 0.1) == [None] * 200
        assert proxy.metrics()["twinshore_proxy_brokers_lost_total"] == lost, proxy.said()
        assert read(client, "app", ["app-certified", "app-token"], COUNT + 200) == COUNT + 200
        assert write({**bare, "message.timeout.ms": 3000}, "app-token", 1) == ["_MSG_TIMED_OUT"]
        assert "it shows no certificate, and [proxy] client_ca_file asks for one" in proxy.said()
