"""`twinshore settings` and `proxy user`, as they are typed and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.config.model import SaslMechanism
from twinshore.kafka.clock import wall_ms
from twinshore.kafka.protocol.sasl import parse_scram_keys
from twinshore.state.core.proxy_values import ProxyInstanceRow
from twinshore.state.store import open_store

SETTINGS = """
[clusters.east]
bootstrap = ["127.0.0.1:1"]
[proxy]
sasl = ["SCRAM-SHA-512"]
users_file = "users.toml"
"""
URL = "sqlite:///twinshore.db"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twinshore.toml").write_text(SETTINGS)


def said(*words: str, typed: str = "") -> str:
    register_verbs()
    done = CliRunner().invoke(app, words, input=typed)
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def shown(prefix: str) -> dict[str, dict[str, object]]:
    return {one["key"]: one for one in json.loads(said("settings", "show", prefix, "--json"))}


def test_a_setting_is_tried_set_shown_and_unset() -> None:
    said("settings", "set", "proxy.clients_max", "7", "--dry-run")
    assert not Path("twinshore.db").exists()
    said("settings", "set", "proxy.clients_max", "7")
    found = shown("proxy.clients_max")["proxy.clients_max"]
    assert (found["value"], found["source"], found["is_live"]) == (7, "store", True)
    assert said("settings", "show", "proxy.clients_max").startswith("proxy.clients_max = 7 (store by ")
    said("settings", "unset", "proxy.clients_max", "--dry-run")
    assert shown("proxy.clients_max")["proxy.clients_max"]["source"] == "store"
    said("settings", "unset", "proxy.clients_max")
    assert shown("proxy.clients_max")["proxy.clients_max"]["source"] == "default"
    assert said("settings", "show", "nothing") == "none\n"


def test_the_proxies_that_go_by_it_are_counted() -> None:
    now_ms = wall_ms()
    with open_store(URL) as store:
        for name, revision in (("p1", 1), ("p2", 0)):
            store.proxies.tell(ProxyInstanceRow(name, f"proxy {name}", "a", 1, now_ms, 0, now_ms, revision), [], [])
    assert "1 of 2 proxies; not yet at proxy p2" in said("settings", "set", "proxy.clients_max", "7")
    behind = {one["name"]: one["status"] for one in json.loads(said("proxy", "list", "--json"))}
    assert (behind["proxy p1"], behind["proxy p2"] != behind["proxy p1"]) == ("serves", True)


@pytest.mark.parametrize("way", ["prompt", "standard input", "file"])
def test_a_password_is_typed_or_read_and_never_kept(way: str) -> None:
    Path("password").write_text("ses ame\n")
    words = {"prompt": (), "standard input": ("--password-file", "-"), "file": ("--password-file", "password")}[way]
    typed = {"prompt": "ses ame\nses ame\n", "standard input": "ses ame\n"}.get(way, "")
    told = said("proxy", "user", "set", "an.na", *words, typed=typed)
    assert "ses ame" not in told
    with open_store(URL) as store:
        (row,) = store.settings.all()[1]
        assert row.key == 'proxy.users."an.na"'
        keys = parse_scram_keys(json.loads(row.value), SaslMechanism.SCRAM_SHA_512)
        everything = told + said("settings", "show") + said("settings", "show", "--json") + said("audit")
        assert keys.text not in everything and keys.text[:20] not in everything
    assert shown("proxy.users.")['proxy.users."an.na"']["value"] == "set"
    said("proxy", "user", "remove", "an.na")
    assert shown("proxy.users.") == {}


def test_the_same_user_prints_a_table_for_the_file() -> None:
    Path("password").write_text("sesame\n")
    assert said("proxy", "user", "print", "anna", "--password-file", "password").startswith(
        '["anna"]\nscram_sha_512 = '
    )
