"""A report in words, its exit code, and the metrics."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.proof.test_planning import DIFFERENCE, LOOK, answer, cut
from twinshore.proof.core.keys import KeyCheck
from twinshore.proof.core.model import CompareMode, MissingTombstone
from twinshore.proof.core.planning import apply_results
from twinshore.proof.core.report import as_values, describe_report, exit_code
from twinshore.proof.link_scan import NotCompared
from twinshore.proof.rounds import PartitionReport, ProofReport
from twinshore.proof.service import METRIC_HELP, ProofCollector
from twinshore.state.core.values import KeyCheckRow, ProofState
from twinshore.state.store import open_store

ROOT = Path(__file__).resolve().parents[2]
ROW = apply_results(LOOK, cut(LOOK), [answer(one) for one in cut(LOOK)], 5_000)
GOOD = PartitionReport(ROW, 890, 2_000_000, 0.5)
BAD_ROW = replace(ROW, state=ProofState.DIFFERS, sentence=json.dumps(asdict(DIFFERENCE)), to_offset=450)
BAD = replace(GOOD, row=BAD_ROW)
STUCK = replace(GOOD, troubles=(("the broker is away", "start it"),))
LOOKED = KeyCheckRow(
    link="east->west",
    topic="orders",
    partition=3,
    source_topic_id="aa",
    target_topic_id="bb",
    mark_end=9,
    mark_ms=1,
    since_ms=1,
    retention_ms=86_400_000,
    may_lack_tombstones=0,
    checked_ms=2,
    checked_end=9,
    missing_tombstones=0,
    from_offset=-1,
    to_offset=-1,
)


def report(*partitions: PartitionReport, lacks: tuple[NotCompared, ...] = ()) -> ProofReport:
    return ProofReport(partitions, lacks, 2.0)


def test_exit_codes_are_for_scripts() -> None:
    lack = NotCompared("east->west", "orders", -1, "there is no topic orders on west")
    assert exit_code(report(GOOD)) == 0
    assert exit_code(report(GOOD, BAD, STUCK)) == 1, "a difference is told whatever else failed"
    assert exit_code(report(GOOD, STUCK)) == 2
    assert exit_code(report(GOOD, lacks=(lack,))) == 2
    assert exit_code(report()) == 2


def test_words_name_offset_kind_and_both_records() -> None:
    text = "\n".join(describe_report(report(GOOD, BAD, STUCK)))
    proven = "orders-3: identical from 10 through offset 899, 890 records (exact)"
    assert f"{proven}, digest {ROW.digest}, as of 1970-01-01 00:00:05Z, 100 behind the source" in text
    assert "DIFFERS at offset 450: changed value: it is another" in text
    assert "source: offset 450, time 1, key None, value v h=None" in text
    assert "target: no record" in text
    assert "could not go on: the broker is away" in text and "try: start it" in text
    first, second, *_ = text.splitlines()
    assert first == (
        "NOT identical: 1 of 3 partitions identical, 1 differ, 1 cannot be told,"
        " beyond what both have the source has 100 offsets not compared (orders 100);"
        " 2,670 records compared now in 2.0 s, 3 MB/s"
    )
    assert "orders-3" in second and text.index("DIFFERS") < text.index("could not go on"), "what differs comes first"
    assert text.count("orders-3") == 2, "what is identical is named on request alone"
    assert "\n".join(describe_report(report(GOOD, BAD, STUCK), everything=True)).count("orders-3") == 3


def test_the_verdict_says_how_much_of_the_source_lies_beyond_what_both_have() -> None:
    """A mirror that stands leaves its twins identical as far as they go, and far behind."""
    verdict = next(describe_report(report(GOOD)))
    assert "100 offsets" in verdict and "(orders 100)" in verdict
    others = [
        replace(GOOD, row=replace(ROW, topic=name, source_end=900 + more))
        for name, more in (("bills", 5), ("clicks", 0), ("lists", 7), ("rates", 1))
    ]
    verdict = next(describe_report(report(GOOD, *others)))
    assert "the source has 113 offsets not compared (orders 100, lists 7, bills 5, ...)" in verdict
    level = replace(GOOD, row=replace(ROW, source_end=900), scan=replace(LOOK, source_high=900))
    assert "beyond" not in next(describe_report(report(level)))
    open_from = replace(level, scan=replace(LOOK, source_high=1_500))
    assert "has 600 offsets not compared (orders 600)" in next(describe_report(report(open_from))), (
        "a transaction is open"
    )
    assert (as_values(report(GOOD))["behind"], as_values(report(level))["behind"]) == (100, 0)


@pytest.mark.parametrize(("behind_max", "code"), [(-1, 0), (0, 2), (99, 2), (100, 0)])
def test_whoever_bounds_what_may_lie_beyond_is_told_where_more_does(behind_max: int, code: int) -> None:
    bound = replace(report(GOOD), behind_max=behind_max)
    assert exit_code(bound) == code
    assert (f"100 offsets not compared, more than {behind_max} (orders 100)" in next(describe_report(bound))) == (
        code == 2
    )
    level = replace(report(replace(GOOD, row=replace(ROW, source_end=900))), behind_max=behind_max)
    assert exit_code(level) == 0


def test_of_a_sample_nothing_is_called_identical() -> None:
    sample = replace(GOOD, sampled=True, answered=1)
    verdict = next(describe_report(report(sample)))
    assert verdict == "no difference in samples: 1 of 1 partitions alike; 890 records compared now in 2.0 s, 1 MB/s"
    assert (exit_code(report(sample)), as_values(report(sample))["state"]) == (0, "sampled")
    bad = report(sample, replace(BAD, sampled=True))
    assert next(describe_report(bad)).startswith("NOT identical: 1 of 2 partitions alike, 1 differ")
    assert as_values(bad)["state"] == "differs"


def test_the_verdict_says_what_was_compared_by_a_map_of_offsets() -> None:
    mapped = replace(GOOD, row=replace(ROW, mode=CompareMode.OFFSET_MAP, source_end=900))
    level = replace(GOOD, row=replace(ROW, source_end=900))
    assert "3 of 3 partitions identical, 1 of them " in next(describe_report(report(mapped, level, level)))


def test_a_link_whose_cluster_is_away_is_in_the_verdict_for_people_and_for_programs() -> None:
    away = NotCompared("east->west", "", -1, "west: no answer about metadata within 30 s (is the broker up?)")
    said = "cannot tell: east->west: west: no answer about metadata within 30 s (is the broker up?)"
    alone = report(lacks=(away,))
    assert list(describe_report(alone)) == [said] and exit_code(alone) == 2
    assert (as_values(alone)["state"], as_values(alone)["says"]) == ("could not", said)
    beside = report(GOOD, lacks=(away,))
    verdict, line = describe_report(beside)
    assert verdict.startswith("cannot tell: 1 of 1 partitions identical, 1 link ")
    assert line == f"east->west: not compared: {away.sentence}"


def test_words_name_the_last_offset_that_is_the_same_and_none_where_there_is_none() -> None:
    empty = replace(GOOD, row=replace(ROW, from_offset=10, to_offset=10, source_end=10, records=0))
    assert "orders-3: identical: both sides are empty, 0 records" in "\n".join(
        describe_report(report(empty), everything=True)
    )
    parted = replace(BAD, row=replace(BAD_ROW, from_offset=450, to_offset=450, records=0))
    assert "orders-3: identical nowhere from offset 450 on, 0 records" in "\n".join(describe_report(report(parted)))


def test_a_twin_that_stands_for_half_the_time_of_tombstones_is_warned_of_though_it_is_identical() -> None:
    standing = replace(GOOD, keys=KeyCheck(LOOKED, stands_ms=45_000_000))
    (_, line) = describe_report(report(standing, replace(GOOD, keys=KeyCheck(LOOKED, stands_ms=4_000_000))))
    assert line.startswith("east->west: orders-3: ") and "12:30:00" in line and "1 day, 0:00:00" in line
    assert exit_code(report(standing)) == 0
    assert as_values(report(standing))["partitions"][0]["stands_s"] == 45_000


def test_owed_deletions_are_counted_and_some_of_their_keys_named() -> None:
    row = replace(LOOKED, missing_tombstones=25, from_offset=1, to_offset=800)
    keys = tuple(MissingTombstone(at, f"k{at}") for at in range(1, 25))
    owing = replace(GOOD, keys=KeyCheck(row, looked=True, keys=keys))
    text = "\n".join(describe_report(report(owing)))
    assert exit_code(report(owing)) == 1
    assert "25 keys " in text and "offsets 1 to 799" in text
    assert text.count(", key k") == 20 and "and 5 more" in text


def test_programs_get_the_same() -> None:
    values = json.loads(json.dumps(as_values(report(GOOD, BAD))))
    assert values["state"] == "differs"
    one, other = values["partitions"]
    assert (one["to_offset"], one["behind"], one["difference"], one["digest"]) == (900, 100, None, ROW.digest)
    assert (other["difference"]["offset"], other["difference"]["source"]["value"]) == (450, "v")


def test_the_metrics_on_the_page_are_the_ones_served(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/store.db") as store:
        store.proofs.save([replace(BAD_ROW, oldest_ms=3_000)])
        store.key_checks.save([replace(LOOKED, retention_ms=5, missing_tombstones=7, from_offset=1, to_offset=8)])
        registry = CollectorRegistry()
        registry.register(ProofCollector(store, lambda: 65.0))
        text = generate_latest(registry).decode()
    labels = '{link="east->west",partition="3",topic="orders"}'
    for name, value in (
        ("offset", 450.0),
        ("behind_records", 550.0),
        ("age_seconds", 60.0),
        ("differs", 1.0),
        ("read_age_seconds", 62.0),
        ("owed_deletions", 7.0),
    ):
        assert f"twinshore_proof_{name}{labels} {value}\n" in text
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    page = (ROOT / "docs" / "proof.md").read_text()
    assert set(re.findall(r"^\| `(twinshore_\w+)`", page, re.MULTILINE)) == served == set(METRIC_HELP)
