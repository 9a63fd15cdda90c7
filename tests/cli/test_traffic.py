"""`twinshore proxy traffic` and `proxy client-audit`, as they are typed and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testkit.errors import raises
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.proxy_values import TrafficCounter, TrafficKey, TrafficKind, TrafficRow
from twinshore.state.store import open_store


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("twinshore.toml").write_text('[clusters.east]\nbootstrap = ["127.0.0.1:1"]\n')
    return "sqlite:///twinshore.db"


def said(*words: str, code: int = 0) -> str:
    register_verbs()
    done = CliRunner().invoke(app, ["proxy", *words])
    if isinstance(done.exception, ConfigError):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def tells(url: str) -> None:
    """A minute of a client that sends each record by itself."""
    key, flow = (
        TrafficKey("a\nb", "orders", "east", TrafficKind.PRODUCE),
        TrafficCounter(600, 60_000, 600, 600, single_record_batches=600),
    )
    now_ms = wall_ms()
    with open_store(url) as store:
        for end_ms in range(now_ms - 60_000, now_ms, 10_000):
            store.traffic.tell([TrafficRow("p1", "proxy a:19092", end_ms - 10_000, end_ms, key, flow)])


def test_traffic_is_shown_by_what_is_asked_for(url: str) -> None:
    assert len(said("traffic").splitlines()) == 1
    tells(url)
    assert said("traffic") == "orders, produce: 6,000 bytes/s, 60.0 requests/s, 60.0 records/s\n"
    assert said("traffic", "--by", "client", "--last", "1h").startswith(r"a\nb, produce: ")
    (line,) = json.loads(said("traffic", "--by", "way", "--json"))["lines"]
    assert (line["subject"], line["records"]) == ("proxy a:19092 to east", 3_600)
    with pytest.raises(ConfigError, match="--by is 'site'"):
        said("traffic", "--by", "site")


def test_audit_is_told_and_written(url: str) -> None:
    with raises(ConfigError, "advisor.no-store"):
        said("client-audit", "--here")
    tells(url)
    lines = said("client-audit", "--here", "--last", "10m", "--html", "audit.html", code=1).splitlines()
    assert lines[2].startswith("WARNING single-records: ")
    assert lines[4].startswith(r"  client a\nb, topic orders on east: 100% ")
    assert "single-records" in Path("audit.html").read_text()
    assert json.loads(said("client-audit", "--here", "--json", code=1))["findings"][0]["rule"] == "single-records"
