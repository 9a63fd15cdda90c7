"""Verdicts on claims: none is passed over, none is passed by accident."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from bench.kit.claims import Claim, Finding, Once, all_hold, to_json, to_page, to_text, try_claims
from bench.kit.playing import all_marks, claimed_for
from bench.measure.mirror import PARTS
from bench.show import advisor as show_advisor
from bench.show import broadcast as show_broadcast
from bench.show import client as show_client
from bench.show import crossing as show_crossing
from bench.show import groups as show_groups
from bench.show import nouns as show_nouns
from bench.show import protection as show_protection
from bench.show import proxy as show_proxy
from bench.show import switch as show_switch
from bench.show import topics as show_topics
from bench.show.crossing import AGAINST_MIRROR_MAKER, OVER_DISTANCE, bench_parts
from testkit.log_kinds import KINDS


def _gives(finding: Finding) -> Callable[[bool], Finding]:
    return lambda _long: finding


def _breaks(_long: bool) -> Finding:
    raise RuntimeError(f"no file {tempfile.gettempdir()}/somewhere\nand more")


HOLDS = Claim("good", "two | two is four", _gives(Finding("4", True, (("sum", 4),))))
SHORT = Claim("bad", "it is fast", _gives(Finding("it is slow", False, (("speed", 0.5),))))
BREAKS = Claim("broken", "it works", _breaks)


def _silent(_sentence: str) -> None:
    """Nobody reads the progress of these."""


def test_all_must_be_tried_and_all_must_hold() -> None:
    good = try_claims([HOLDS, HOLDS], [], long=False, say=_silent)
    assert all_hold(good)
    assert json.loads(to_json("x", good)) == {"show": "x", "ok": True, "claims": 2, "passed": 2, "not_run": 0, "sum": 4}
    assert not all_hold(try_claims([HOLDS, SHORT], [], long=False, say=_silent))
    partly = try_claims([HOLDS, SHORT], ["good"], long=False, say=_silent)
    assert not all_hold(partly)
    line = json.loads(to_json("x", partly))
    assert line == {"show": "x", "ok": False, "claims": 2, "passed": 1, "not_run": 1, "sum": 4}


def test_a_claim_that_cannot_be_tried_falls_short_and_the_others_go_on() -> None:
    verdicts = try_claims([BREAKS, HOLDS], [], long=False, say=_silent)
    assert [verdict.word for verdict in verdicts] == ["FALLS SHORT", "holds"]
    finding = verdicts[0].finding
    assert finding is not None
    assert finding.figure == "failed: RuntimeError: no file .../somewhere", "the machine's places stay out of the page"


def test_what_several_claims_rest_on_is_measured_once_also_when_it_fails() -> None:
    calls = []

    def measure(long: bool) -> int:
        calls.append(long)
        if not long:
            raise RuntimeError("no room")
        return 7

    whole = Once(measure)
    assert (whole(True), whole(True), calls) == (7, 7, [True])
    broken = Once(measure)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no room"):
            broken(False)
    assert calls == [True, False]


def test_the_page_and_the_table_show_every_claim() -> None:
    verdicts = try_claims([HOLDS, SHORT], ["bad"], long=True, say=_silent)
    page = to_page("# Head\n", "a machine", "at full size", verdicts, "{}")
    assert "| two \\| two is four |  | not run |\n| it is fast | it is slow | FALLS SHORT |" in page
    text = to_text(verdicts).splitlines()
    assert text[0].split("  ")[0] == "not run"
    assert text[1].startswith("FALLS SHORT  it is fast")
    assert text[2].strip().startswith("it is slow (")


def test_the_promises_against_mirror_maker_are_as_they_were_made() -> None:
    at_bound = {"plain_rate": 2, "lz4_rate": 4, "single_rate": 4, "plain_cpu": 1 / 5.5, "lz4_cpu": 1 / 16}
    at_bound |= {"single_cpu": 0.1, "p50": 1 / 3, "p99_vs_p50": 0.999, "p999": 0.999}
    beyond = {name: value * (0.99 if name.endswith("_rate") else 1.01) for name, value in at_bound.items()}
    assert {bound.figure for bound in AGAINST_MIRROR_MAKER} == set(at_bound)
    for bound in AGAINST_MIRROR_MAKER:
        assert bound.holds(at_bound[bound.figure]), bound.name
        assert not bound.holds(beyond[bound.figure]), bound.name
    far = {bound.figure: bound for bound in OVER_DISTANCE}
    assert far["rate_kept"].holds(0.8)
    assert not far["rate_kept"].holds(0.799)
    assert not far["rate_kept"].holds(2.0), "a disturbed measurement shows nothing"


def test_beside_a_rate_and_a_cost_stands_the_distance_from_a_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bench:
        def figures(self) -> dict[str, float]:
            return {"plain_cpu": 0.1, "p50": 0.2}

        def words(self) -> dict[str, str]:
            return {"plain_cpu": "0.90 us by 9.00 us", "p50": "1 ms by 5 ms"}

        def cpu_us(self, _workload: str) -> float:
            return 0.9

    monkeypatch.setattr(show_crossing, "run_mirror_bench", lambda **_: Bench())
    monkeypatch.setattr(show_crossing, "bare_relay", lambda: 400.0)
    tried = {claim.name: claim for claim in show_crossing.claims(1)}
    cost = tried["plain-cpu"].run(True)
    assert cost.passed
    assert cost.figure == "1/10.0: 0.90 us by 9.00 us; our CPU is 2.3 times a bare relay's, 0.40 us"
    assert cost.numbers == (("plain_cpu", 0.1), ("plain_above_relay", 2.27))
    assert "relay" not in tried["p50"].run(True).figure


@pytest.fixture(scope="module")
def marks() -> list[dict[str, Any]]:
    return all_marks()


@pytest.mark.parametrize(
    ("show", "least"),
    [
        (show_crossing, 18),
        (show_topics, 89),
        (show_groups, 58),
        (show_switch, 24),
        (show_client, 14),
        (show_proxy, 10),
        (show_advisor, 2),
        (show_broadcast, 7),
        (show_nouns, 23),
        (show_protection, 8),
    ],
)
def test_every_claim_has_a_name_of_its_own_and_is_measured_or_marked_on_a_test(
    show: ModuleType, least: int, marks: list[dict[str, Any]]
) -> None:
    names = [*(claim.name for claim in show.claims(1)), *show.KEYS]
    assert len(names) == len(set(names)) >= least
    marked = claimed_for(show.__name__.rpartition(".")[2], marks)
    assert set(marked) == set(show.KEYS), "a page has each claim that a test is marked with, and no other"
    assert all(claim.tests for claim in marked.values()), "there is something to play that is not of full size"


def test_every_kind_of_log_that_is_filled_is_claimed() -> None:
    assert {key.removeprefix("log-") for key in show_topics.KEYS if key.startswith("log-")} == set(KINDS)


def test_one_claim_alone_measures_only_what_it_rests_on() -> None:
    assert bench_parts([]) == []
    assert bench_parts(["lz4-cpu", "demo"]) == ["lz4"]
    assert bench_parts(["p999"]) == ["plain", "latency"]
    assert set(bench_parts([bound.name for bound in AGAINST_MIRROR_MAKER])) <= set(PARTS)
