"""From runs to the line of JSON and the page; what copiers are told; what is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.kit.machine import Machine
from bench.kit.page import with_section
from bench.measure.drain import Drain
from bench.measure.latency import Latency
from bench.measure.mirror import FULL, OURS, THEIRS, MirrorBench
from bench.measure.mirror_page import mirror_section
from bench.measure.wan import ROUND_TRIP_MS, Crossing, WanBench, wan_section
from testkit.copiers import CopyJob, MirrorMaker, Twinshore, mirror_makers
from testkit.figures import StageError, Window
from testkit.loader import LZ4_BATCH_BYTES, WORKLOADS
from twinshore.config.model import Cluster
from twinshore.config.settings import parse_settings
from twinshore.kafka.protocol.record_batch import check_crc, split_batches

MACHINE = Machine("a processor", 2, 24, "Linux", "3.11", "17", "4.3.1", "4.1")
JOB = CopyJob(Cluster("east", ("127.0.0.1:1",)), Cluster("west", ("127.0.0.1:2",)), "bench-plain", 3)


def run(copier: str, setting: str, rate: int, cpu_s: float, workload: str = "plain", line_bytes: float = 0) -> Drain:
    window = Window(seconds=10, records=rate * 10, copier_cpu_s=cpu_s, brokers_cpu_s=10 - cpu_s, machine_cpu_s=12)
    return Drain(copier, setting, workload, window, startup_s=5, memory_mb=800, line_bytes=line_bytes)


def delay(copier: str, p50_ms: float) -> Latency:
    return Latency(copier, "defaults", 100, 6_000, 0, p50_ms, p50_ms * 2, p50_ms * 4, p50_ms * 8)


@pytest.fixture
def bench() -> MirrorBench:
    """MirrorMaker is faster tuned; ours has an outlier that a median leaves out."""
    drains = (
        *(run(THEIRS, "defaults", 10, 9), run(OURS, "defaults", 500, 4), run(THEIRS, "tuned", 100, 8)),
        *(run(OURS, "defaults", 400, 2), run(THEIRS, "tuned", 100, 8), run(OURS, "defaults", 1, 9)),
    )
    latencies = (delay("none", 1), delay(THEIRS, 8), delay(OURS, 2))
    return MirrorBench(MACHINE, FULL, drains, (run(OURS, "defaults", 7, 1),), latencies, (("plain", "tuned"),))


def test_the_line_is_flat_and_ours_by_the_faster_setting_of_theirs(bench: MirrorBench) -> None:
    found = json.loads(bench.to_json())
    # Medians: 400 records/s by 100; (4 s / 5000 records = 800 us) by (8 s / 1000 records = 8000 us).
    assert found == {
        "bench": "mirror",
        "plain_rate": 4.0,
        "plain_cpu": 0.1,
        "p50": 0.25,
        "p99_vs_p50": 0.5,
        "p999": 0.25,
        "task_share": 0.4,
    }


def test_the_words_say_what_was_divided_by_what(bench: MirrorBench) -> None:
    assert bench.words() == {
        "plain_rate": "400/s by 100/s of MirrorMaker with tuned, 3 and 2 runs of 15 s",
        "plain_cpu": "800.00 us by 8000.00 us of MirrorMaker with tuned, 3 and 2 runs of 15 s",
        "p50": "2.0 ms by 8.0 ms, 6,000 records in 1 runs at 100/s",
        "p99_vs_p50": "4.0 ms by 8.0 ms, 6,000 records in 1 runs at 100/s",
        "p999": "8.0 ms by 32.0 ms, 6,000 records in 1 runs at 100/s",
    }
    assert bench.words().keys() == bench.figures().keys() - {"task_share"}


def test_the_page_holds_every_run_and_the_line(bench: MirrorBench) -> None:
    page = mirror_section(bench)
    assert "| plain: 1 KB records, uncompressed, 16 KB batches | 4.00x | 1/10.0 | tuned |" in page
    assert page.count("| plain: Twinshore, defaults |") == 3 + 1 + 1 + 1, "runs, the replicated one, two medians"
    assert "ours is 40%" in page
    assert bench.to_json() in page


def test_a_bench_writes_its_own_section_and_no_other() -> None:
    first = with_section("", "wan", "## Far\n\nold")
    both = with_section(first, "mirror", "## Beside")
    assert both.index("## Beside") < both.index("## Far"), "in the page's order, not in that of writing"
    again = with_section(both, "wan", "## Far\n\nnew")
    assert "old" not in again
    assert "## Beside" in again
    assert with_section(again, "wan", "## Far\n\nnew") == again


def test_a_far_source_is_judged_by_the_faster_setting_too() -> None:
    runs = (
        *((0.0, run(OURS, "defaults", 100, 1)), (ROUND_TRIP_MS, run(OURS, "defaults", 90, 1, line_bytes=1_000))),
        (ROUND_TRIP_MS, run(THEIRS, "defaults", 9, 1, line_bytes=3_000)),
        (ROUND_TRIP_MS, run(THEIRS, "tuned", 30, 1, line_bytes=2_000)),
    )
    bench = WanBench(MACHINE, tuple(Crossing(*each) for each in runs))
    assert json.loads(bench.to_json()) == {
        "bench": "wan",
        "round_trip_ms": 60.0,
        "rate_kept": 0.9,
        "rate": 3.0,
        "bytes_per_record": 0.5,
    }
    assert "keeps 90%" in wan_section(bench)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_made_of_whole_batches(name: str) -> None:
    workload = WORKLOADS[name]()
    for batch in workload.batches:
        ((view, header),) = split_batches(memoryview(batch.data))
        check_crc(view, header)
        assert header.count == batch.records
    if name == "lz4":
        assert all(0.9 < len(batch.data) / LZ4_BATCH_BYTES < 1.1 for batch in workload.batches)
        assert len(workload.batches[0].data) / workload.batches[0].records * 3 > 200, "it compresses, but not by magic"


def test_our_settings_are_accepted(tmp_path: Path) -> None:
    text = Twinshore(task_run_s=10).settings(JOB, tmp_path)
    settings = parse_settings(text, name="bench", env={})
    assert [link.topics for link in settings.links] == [("bench\\-plain",)]
    assert settings.mirror.task_run_s == 10


def test_theirs_must_have_taken_what_it_was_given(tmp_path: Path) -> None:
    tuned = MirrorMaker("tuned", consumer={"max.poll.records": "9"}, producer={"batch.size": "8"})
    assert tuned.properties(JOB)["east3->west.consumer.max.poll.records"] == "9"
    log = tmp_path / "copier.log"
    log.write_text("INFO ConsumerConfig values: \n\tmax.poll.records = 9\n\n")
    with pytest.raises(StageError, match=r"batch\.size=8"):
        tuned.check(tmp_path)
    log.write_text(log.read_text() + "INFO ProducerConfig values: \n\tacks = -1\n\tbatch.size = 8\n\n")
    tuned.check(tmp_path)


def test_theirs_is_tried_at_its_defaults_and_tuned() -> None:
    defaults, tuned, *more = mirror_makers("lz4")
    assert mirror_makers("lz4", few=True) == (defaults, tuned)
    assert not defaults.consumer
    assert not defaults.producer
    assert all((one.producer or {})["compression.type"] == "lz4" for one in (tuned, *more))
    assert "compression.type" not in (mirror_makers("plain")[1].producer or {})
