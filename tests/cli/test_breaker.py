"""`twinshore proxy breaker` and `proxy list`, as they are typed and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.proxy_values import BreakerCountRow, BreakerKind, DroppedRecordsRow, ProxyInstanceRow
from twinshore.state.store import open_store


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("twinshore.toml").write_text('[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n')
    return "sqlite:///twinshore.db"


def said(*words: str) -> str:
    register_verbs()
    done = CliRunner().invoke(app, ["proxy", *words])
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_breaker_is_opened_seen_and_closed(url: str) -> None:
    told = said("breaker", "open", "orders", "--produce", "--policy", "drop", "--reason", "a\ntest", "--for", "10m")
    assert len(told.splitlines()) == 3 and "orders is open for 600 s, drop" in told
    now_ms = wall_ms()
    with open_store(url) as store:
        count = BreakerCountRow("p1", "orders", "*", BreakerKind.PRODUCE, 1, 2, 30, False, now_ms)
        drop = DroppedRecordsRow("p1", "orders", "app", 0, "orders", "0,1", 2, 30, 1_000)
        store.proxies.tell(ProxyInstanceRow("p1", "proxy a:19092", "a1", 19092, 0, 1, now_ms), [count], [drop])
    (line,) = said("breaker", "list").splitlines()
    assert line.startswith("produce of orders for clients *: open ")
    assert line.endswith(r": a\ntest; it has answered 1 request with 2 records, 30 bytes")
    assert said("breaker", "drops") == (
        "orders, partitions 0,1, of client app: 2 records, 30 bytes,"
        " from 1970-01-01 00:00:00 UTC to 1970-01-01 00:00:01 UTC\n"
    )
    assert said("list").startswith("proxy a:19092 on a1: serves, since 1970-01-01 00:00:00 UTC, heard of at ")
    (row,) = json.loads(said("list", "--json"))
    assert (row["name"], row["status"], row["revision"]) == ("proxy a:19092", "serves", 1)
    assert "would be closed" in said("breaker", "close", "orders", "--dry-run")
    assert [one["open"] for one in json.loads(said("breaker", "list", "--json"))] == [True]
    assert "in force at" in said("breaker", "close", "orders")
    assert [one["open"] for one in json.loads(said("breaker", "list", "--json"))] == [False]


@pytest.mark.usefixtures("url")
def test_before_there_is_anything_nothing_is_shown_and_nothing_made() -> None:
    for words in (["list"], ["breaker", "list"], ["breaker", "drops"]):
        assert said(*words) == "none\n"
    assert "would be open" in said("breaker", "open", "orders", "--reason", "x", "--dry-run")
    assert not Path("twinshore.db").exists()


@pytest.mark.usefixtures("url")
def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="policy"):
        said("breaker", "open", "orders", "--reason", "x", "--policy", "lose")
