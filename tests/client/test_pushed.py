"""What a configuration centre pushes: taken as a whole or not at all, and kept for a start without the centre."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from testkit.errors import mentions, raises
from testkit.log_lines import LogLines
from twinshore.client.core.pushes import ApplicationSettings, PushedSettings, read_pushed
from twinshore.client.discovery import config_service as pushed_module
from twinshore.client.discovery.config_service import Pushes, PushFile, PushQuery, load_last_push, save_last_push
from twinshore.client.discovery.http import Apollo, PushServer
from twinshore.config.errors import ConfigError

EAST, WEST = {"bootstrap.servers": "east:9092", "sasl.password": "hidden"}, {"bootstrap.servers": "west:9092"}
PUSH: dict[str, Any] = {"clusters": {"east": EAST, "west": WEST}, "home": "west", "settings": {"linger.ms": 5}}
TOPICS = ("orders", "pay*")


def text(**changed: Any) -> str:
    return json.dumps(PUSH | changed)


def test_a_push_is_understood() -> None:
    found = read_pushed(
        text(topics=["orders", "payments"]), ApplicationSettings({"client.id": "shop", "linger.ms": 9}), TOPICS
    )
    assert (sorted(found.sites), found.begin) == (["east", "west"], "west")
    settings = found.sites["west"].settings()
    assert (settings["linger.ms"], settings["client.id"]) == (5, "shop"), "what is pushed counts first"
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        ("", "push-not-json"),
        ("[]", "push-not-json"),
        ("{}", "push-clusters-invalid"),
        ("[" * 100_000, "push-not-json"),
        (text(homes="west"), "push-key-unknown"),
        (text(home="wset"), "push-home-unknown"),
        (text(home=["west"]), "push-home-unknown"),
        (text(clusters={}), "push-clusters-invalid"),
        (text(clusters={"west": {}}), "setting-missing"),
        (text(clusters={"west": ["west:9092"]}), "push-settings-invalid"),
        (text(clusters={"west": {**WEST, "security.protocol": "TSL"}}), "protocol-unknown"),
        (text(settings={"linger.ms": None}), "push-value-invalid"),
        (text(topics="orders"), "push-topics-invalid"),
        (text(topics=["orders", "bills"]), "push-for-other-topics"),
        (text(x="y" * (1 << 20)), "push-too-long"),
    ],
)
def test_what_is_no_push_is_told_in_one_sentence(raw: str, wrong: str) -> None:
    with raises(ConfigError, f"client.{wrong}") as caught:
        read_pushed(raw, ApplicationSettings(), TOPICS)
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("where", ["settings", "clusters"])
@pytest.mark.parametrize(
    ("own", "pushed"),
    [
        ("PLAINTEXT", {"plugin.library.paths": "theirs.so"}),
        ("PLAINTEXT", {"enable.ssl.certificate.verification": False}),
        ("SASL_SSL", {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}),
        ("SASL_SSL", {"security.protocol": "SSL"}),
        ("SSL", {"security.protocol": "PLAINTEXT"}),
    ],
)
def test_a_push_makes_an_application_no_less_safe_than_it_is(own: str, pushed: dict[str, Any], where: str) -> None:
    mine = {"security.protocol": own, "sasl.mechanism": "PLAIN", "sasl.username": "shop", "sasl.password": "hidden"}
    raw = text(settings=pushed) if where == "settings" else text(clusters={"west": {**WEST, **pushed}})
    with pytest.raises(ConfigError) as caught:
        read_pushed(raw, ApplicationSettings(mine), TOPICS)
    assert caught.value.code in ("client.push-of-reserved-setting", "client.push-of-weaker-protocol")
    assert "hidden" not in str(caught.value)


def test_a_push_may_make_an_application_safer() -> None:
    found = read_pushed(text(settings={"security.protocol": "SSL"}), ApplicationSettings(), TOPICS)
    assert found.sites["west"].settings()["security.protocol"] == "SSL"


SECRET = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "shop",
    "sasl.password": "hidden",
    "ssl.ca.location": "/etc/shop/private-ca.pem",
}


@pytest.mark.claim(
    "client", "own-secrets", "An application's own logins, keys and ids of clusters win over what is pushed."
)
@pytest.mark.parametrize("where", ["settings", "clusters"])
def test_what_an_application_sets_of_logins_and_keys_wins(where: str) -> None:
    evil = {"sasl.mechanism": "PLAIN", "sasl.username": "you", "ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}
    evil["twinshore.cluster.id"] = "stranger"
    raw = text(settings=evil) if where == "settings" else text(clusters={"west": {**WEST, **evil}})
    site = read_pushed(raw, ApplicationSettings(SECRET, {"west": {"twinshore.cluster.id": "W"}}), TOPICS).sites["west"]
    way = site.cluster.security
    assert (way.sasl, way.username, way.ca_file) == ("SCRAM-SHA-512", "shop", "/etc/shop/private-ca.pem")
    assert (site.cluster_id, site.cluster.bootstrap) == ("W", ("west:9092",))
    site = read_pushed(raw, ApplicationSettings({"sasl.mechanism": "SCRAM-SHA-512"}), TOPICS).sites["west"]
    assert (site.cluster.security.ca_file, site.cluster_id) == (evil["ssl.ca.location"], "stranger")


def test_a_push_has_no_password_sent_in_clear_that_the_application_sets() -> None:
    mine = {"sasl.mechanism": "PLAIN", "sasl.username": "shop", "sasl.password": "hidden"}
    with raises(ConfigError, "client.push-of-weaker-protocol", own="SASL_SSL"):
        read_pushed(text(settings={"security.protocol": "SASL_PLAINTEXT"}), ApplicationSettings(mine), TOPICS)


@pytest.mark.claim(
    "client", "pushed-in-clear", "From an http:// address beyond loopback a push names homes and known clusters alone."
)
def test_what_comes_in_clear_names_homes_and_known_clusters_alone() -> None:
    own = {"east": {"bootstrap.servers": "own-east:9092"}, "west": {"bootstrap.servers": "own-west:9092"}}
    found = read_pushed(text(), ApplicationSettings({"linger.ms": 9}, own, in_clear=True), TOPICS)
    assert found.begin == "west"
    assert {name: one.cluster.bootstrap for name, one in found.sites.items()} == {
        "east": ("own-east:9092",),
        "west": ("own-west:9092",),
    }
    assert found.sites["west"].settings()["linger.ms"] == 9
    with raises(ConfigError, "client.push-of-unknown-cluster", cluster="west"):
        read_pushed(text(), ApplicationSettings({}, {"east": own["east"]}, in_clear=True), TOPICS)


@pytest.mark.parametrize(
    ("server", "in_clear"),
    [
        ("http://push:9193", True),
        ("http://10.0.0.7:9193", True),
        ("HTTP://push:9193", True),
        ("https://push:9193", False),
        ("http://127.0.0.1:9193", False),
        ("http://[::1]:9193", False),
        ("http://localhost:9193", False),
        ("http://localhost.example:9193", True),
    ],
)
def test_which_sources_are_in_clear(server: str, in_clear: bool, tmp_path: Path) -> None:
    assert PushServer(server, "shop", token="x").in_clear is in_clear
    assert Apollo(server, "shop").in_clear is in_clear
    for lifted in (PushServer(server, "shop", token="x", insecure_http=True), Apollo(server, "a", insecure_http=True)):
        assert lifted.in_clear is False
    assert PushFile(tmp_path).in_clear is False


def test_half_a_push_is_none() -> None:
    whole = text()
    for cut in range(len(whole)):
        with pytest.raises(ConfigError):
            read_pushed(whole[:cut], ApplicationSettings(), TOPICS)


def test_what_was_kept_is_whole_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "last"
    assert load_last_push(path) is None
    path.with_name("last.part").touch(0o666)
    save_last_push(path, text())
    assert load_last_push(path) == text()
    assert path.stat().st_mode & 0o077 == 0, "it may hold passwords"
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert load_last_push(path) is None
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert load_last_push(path) is None
    with pytest.raises(OSError, match="No such file"):
        save_last_push(tmp_path / "nowhere" / "last", "x")


class Told:
    """Who is told of pushes, and what an operator reads."""

    def __init__(self, sentences: LogLines) -> None:
        self.pushes: list[PushedSettings] = []
        self.sentences = sentences
        self._seen = len(sentences)

    def __call__(self, pushed: PushedSettings) -> None:
        self.pushes.append(pushed)

    def wait(self) -> None:
        until_s = time.monotonic() + 20
        while len(self.pushes) + len(self.sentences) == self._seen:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        self._seen = len(self.pushes) + len(self.sentences)


def replaced(path: Path, what: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(what)
    part.replace(path)


def test_a_file_that_is_replaced_is_heard_of_and_a_bad_one_changes_nothing(tmp_path: Path, log_lines: LogLines) -> None:
    path, told = tmp_path / "push.json", Told(log_lines)
    path.write_text(text())
    pushes = Pushes(PushFile(path), last_good=tmp_path / "last")
    assert pushes.begin({}, TOPICS, told).begin == "west"
    replaced(path, text(home="east"))
    told.wait()
    assert [one.begin for one in told.pushes] == ["east"]
    for bad in ('{"home"', text(topics=["bills"])):
        replaced(path, bad)
        told.wait()
    assert len(told.pushes) == 1
    assert [mentions(one, path, "not taken") for one in told.sentences] == [True, True]
    path.unlink()
    told.wait()
    assert "cannot be asked" in told.sentences[-1]
    assert load_last_push(tmp_path / "last") == text(home="east")
    pushes.stop()

    again = Told(log_lines)
    later = Pushes(PushFile(path), last_good=tmp_path / "last")
    assert later.begin({}, TOPICS, again).begin == "east", "the centre is away: the last good one counts"
    assert mentions(again.sentences[-1], tmp_path / "last")
    later.stop()
    with raises(ConfigError, "client.no-push"):
        Pushes(PushFile(path)).begin({}, TOPICS, again)
    with raises(ConfigError, "client.pushes-in-use"):
        later.begin({}, TOPICS, again)


def test_a_push_that_is_bad_again_is_told_again(tmp_path: Path, log_lines: LogLines) -> None:
    path, told = tmp_path / "push.json", Told(log_lines)
    path.write_text(text())
    pushes = Pushes(PushFile(path))
    pushes.begin({}, TOPICS, told)
    for good in (text(), text(home="east")):
        replaced(path, '{"home"')
        told.wait()
        replaced(path, good)
        time.sleep(1.2)
    assert len([one for one in told.sentences if "not taken" in one]) == 2
    pushes.stop()


def test_a_push_of_transactions_is_told_and_the_next_one_heard_of(tmp_path: Path, log_lines: LogLines) -> None:
    path, told = tmp_path / "push.json", Told(log_lines)
    path.write_text(text())
    pushes = Pushes(PushFile(path))
    pushes.begin({}, TOPICS, told)
    replaced(path, text(settings={"transactional.id": "one"}))
    told.wait()
    assert "transactions" in told.sentences[-1]
    replaced(path, text(home="east"))
    told.wait()
    assert [one.begin for one in told.pushes] == ["east"]
    pushes.stop()


def test_a_push_of_which_no_client_can_be_made_is_not_kept(tmp_path: Path, log_lines: LogLines) -> None:
    path, told = tmp_path / "push.json", Told(log_lines)
    path.write_text(text())

    def check(pushed: PushedSettings) -> None:
        if pushed.begin == "east":
            raise ValueError("linger.ms is no number")

    pushes = Pushes(PushFile(path), last_good=tmp_path / "last")
    assert pushes.begin({}, TOPICS, told, check).begin == "west"
    replaced(path, text(home="east"))
    told.wait()
    assert told.sentences[-1].endswith("the one before stays: linger.ms is no number")
    assert (told.pushes, load_last_push(tmp_path / "last")) == ([], text())
    pushes.stop()


def test_a_push_of_which_a_client_can_be_made_a_moment_later_is_taken_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_lines: LogLines
) -> None:
    monkeypatch.setattr(pushed_module, "UNAPPLIED_RETRY_S", 0.1)
    path, told, tries = tmp_path / "push.json", Told(log_lines), list[str]()
    path.write_text(text())

    def check(pushed: PushedSettings) -> None:
        tries.append(pushed.begin)
        if tries.count("east") in (1, 2):
            raise OSError("no such file: it is just being replaced")

    pushes = Pushes(PushFile(path))
    assert pushes.begin({}, TOPICS, told, check).begin == "west"
    replaced(path, text(home="east"))
    told.wait()
    told.wait()
    assert ([one.begin for one in told.pushes], len(told.sentences)) == (["east"], 1)
    assert tries == ["west", "east", "east", "east"]
    pushes.stop()


def test_a_database_is_asked(tmp_path: Path, log_lines: LogLines) -> None:
    url, told = tmp_path / "settings.db", Told(log_lines)

    def ask() -> str:
        with closing(sqlite3.connect(url)) as connection:
            (found,) = connection.execute("SELECT body FROM pushes WHERE name = 'shop'").fetchone()
            return str(found)

    with closing(sqlite3.connect(url)) as connection:
        connection.execute("CREATE TABLE pushes (name TEXT, body TEXT)")
        connection.execute("INSERT INTO pushes VALUES ('shop', ?)", [text()])
        connection.commit()
        pushes = Pushes(PushQuery(ask, every_s=0.05))
        assert pushes.begin({}, TOPICS, told).begin == "west"
        connection.execute("UPDATE pushes SET body = ?", [text(home="east")])
        connection.commit()
    told.wait()
    assert told.pushes[0].begin == "east"
    pushes.stop()
