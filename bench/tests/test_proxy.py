"""From turns to the line of JSON and the page; what the proxies are told; what passes through them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.kit.machine import Machine
from bench.kit.proxies import PEERS, KafkaProxy, Ours, Site, guard_all
from bench.measure.proxy import BULK, FETCH, FULL, NONE, ONE, OURS, Crowd, ProxyBench, Run
from bench.measure.proxy_load import RECORD_BYTES, values
from bench.measure.proxy_page import proxy_section
from testkit.cluster import RigCluster
from twinshore.config.model import Cluster
from twinshore.config.sections.proxy import SECTION
from twinshore.config.settings import parse_settings
from twinshore.lab.processes import LabError
from twinshore.state.store import open_store

MACHINE = Machine("a processor", 2, 24, "Linux", "3.11", "17", "4.3.1", "4.1")
FIRST, SECOND = (peer.name for peer in PEERS)


def turn(part: str, proxy: str, cpu_us: float, rate: float = 100, p50_ms: float = 0) -> Run:
    return Run(part, proxy, 1_000, 1_000 / rate, cpu_us / 1_000, 0.1, p50_ms, p50_ms * 2)


def bench(*runs: Run, crowds: tuple[Crowd, ...] = (), absent: tuple[tuple[str, str], ...] = ()) -> ProxyBench:
    return ProxyBench(MACHINE, FULL, runs, crowds, absent)


@pytest.fixture
def whole() -> ProxyBench:
    """One peer costs less, the other is faster; an outlier of ours is left out by the median."""
    return bench(
        *(turn(BULK, OURS, 2, 300), turn(BULK, OURS, 2, 300), turn(BULK, OURS, 90, 1)),
        *(turn(BULK, FIRST, 4, 150), turn(BULK, SECOND, 8, 200), turn(BULK, NONE, 0, 400)),
        *(turn(ONE, OURS, 30, p50_ms=0.5), turn(ONE, FIRST, 60, p50_ms=0.6), turn(ONE, NONE, 0, p50_ms=0.3)),
        *(turn(FETCH, OURS, 1), turn(FETCH, SECOND, 4)),
        crowds=(Crowd(OURS, 5_200, 60, 160.04, 1_000, 0.5), Crowd(FIRST, 5_200, 20, 99, 1_000, 0.5)),
    )


def test_the_line_has_ours_by_the_best_peer_of_each_figure(whole: ProxyBench) -> None:
    assert json.loads(whole.to_json()) == {
        "bench": "proxy",
        "bulk_cpu": 0.5,
        "small_cpu": 0.5,
        "fetch_cpu": 0.25,
        "rate": 1.5,
        "p50_added_ms": 0.2,
        "mb_5000": 160.0,
    }


def test_what_cannot_be_had_is_null_and_the_page_says_why() -> None:
    found = bench(turn(BULK, OURS, 2), turn(BULK, NONE, 0), absent=((FIRST, "there is none"),))
    line = json.loads(found.to_json())
    assert set(line.values()) == {"proxy", None}
    assert f"- {FIRST}: there is none" in proxy_section(found)


def test_the_page_has_each_part_that_was_measured_and_every_turn(whole: ProxyBench) -> None:
    page = proxy_section(whole)
    assert page.count("\n### ") == 5
    assert f"| {OURS} | 2.00 | 0.50x | 300 |" in page
    assert f"| {NONE} |  |  | 100 | 0.300 | 0.600 |" in page
    assert page.count("\n| bulk: ") == 6
    assert f"| {OURS} | 5,200 | 160 | 60 | 19.2 |" in page
    assert whole.to_json() in page


def test_where_a_proxy_is_faster_than_none_no_rate_is_told() -> None:
    page = proxy_section(bench(turn(BULK, OURS, 2, 300), turn(BULK, NONE, 0, 200)))
    assert f"| {OURS} | 2.00 |  |\n" in page and "No rates" in page
    assert f"| {NONE} |" not in page


def test_ours_stands_before_both_clusters_and_measures_all_that_passes(tmp_path: Path) -> None:
    clusters = (Cluster("east", ("127.0.0.1:1",)), Cluster("west", ("127.0.0.1:2",)))
    text = Ours().settings(19_500, clusters, tmp_path)
    asked = parse_settings(text, name="proxy.toml", env={}).of(SECTION)
    assert (asked.port, asked.clusters, asked.follows_switches) == (19_500, ("east", "west"), True)
    assert asked.client_bytes_s
    url = f"sqlite:///{tmp_path}/store.db"
    guard_all(url)
    with open_store(url) as store:
        _, breakers = store.breakers.all()
    assert {(row.topic, row.client, str(row.kind), row.limits.any) for row in breakers} == {
        ("*", "*", "produce", True),
        ("*", "*", "fetch", True),
    }


def test_a_peer_that_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_PROXY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="KAFKA_PROXY names none"):
        KafkaProxy().start(Site(RigCluster("east"), Cluster("west", ("127.0.0.1:2",)), tmp_path))


def test_what_passes_is_of_one_size_and_half_of_it_is_chance() -> None:
    found = values(RECORD_BYTES)
    assert {len(one) for one in found} == {RECORD_BYTES}
    assert len({one[: RECORD_BYTES // 2] for one in found}) == len(found)
    assert len({one[RECORD_BYTES // 2 :] for one in found}) == 1
