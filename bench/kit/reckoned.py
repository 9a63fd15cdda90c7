"""Figures that pages name: from what benches and shows measured, and what tests stand on.

Pure: text of pages in, text of pages out. A figure that is reckoned from a measured one says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from bench.kit.page import table
from bench.kit.pictures import machine_of
from bench.kit.sizes import Sizes, recorded
from testkit.databases import MARIADB_VERSION, POSTGRES_VERSION
from twinshore.lab.jars import KAFKA_3, KAFKA_NEWEST, KAFKA_OLDEST, KAFKA_OLDEST_SOURCE, KAFKA_OLDEST_TARGET

RECORD_BYTES = 1_000
LOCKED = ("pyspark", "confluent-kafka", "kio", "numba", "sqlalchemy")
_BENCH, _CROSSING = "[benchmarks](benchmarks.md)", "[the crossing](evidence/crossing.md)"
_STORE = "[the store's size](evidence/store.md)"
_PIECES = "[ARCHITECTURE](../ARCHITECTURE.md#the-pieces-of-a-running-mirror)"


def with_sections(page: str, sections: Mapping[str, str]) -> str:
    """The page with each section anew between its marks."""
    for name, text in sections.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        head, found, rest = page.partition(begin)
        assert found, f"the page has the mark {begin.strip()}"
        page = f"{head}{begin}{text.strip()}\n{end}{rest.partition(end)[2]}"
    return page


def capacity(page: str, bench_page: str, crossing: str, architecture: str, store: str) -> str:
    """docs/capacity.md."""
    show = _line(crossing, "show", "crossing")
    plain, lz4, replicated = (_ours(bench_page, part) for part in ("plain", "lz4", "replicated"))
    links = _links(architecture)
    rows = [
        _measured("1 KB records, uncompressed, on a machine that does all", plain, _BENCH),
        _measured("JSON records of 250 bytes in lz4, the same", lz4, _BENCH),
        _measured("1 KB records, replication 3, six brokers on the same machine", replicated, _BENCH),
        [f"{show['partitions']:,} partitions", _many_partitions(show), _CROSSING],
        ["200 links", links["said"], _PIECES],
        ["a line with a round trip of 60 ms", f"{show['wan_rate_kept']:.0%} of the rate without it", _CROSSING],
    ]
    measured = f"On {machine_of(bench_page)}; brokers, load and mirror share it.\n\n"
    measured += table(["what", "figure", "evidence"], rows).replace("---:", "---")
    return with_sections(
        page,
        {
            "measured": measured,
            "gigabyte": _gigabyte(plain, replicated),
            "partitions": _partitions(show, recorded(store)),
            "links": _link_figures(links),
        },
    )


def any_log(page: str, topics: str) -> str:
    """docs/any-log.md."""
    show = _line(topics, "show", "topics")
    rows = [
        ["a backlog of 100,000 markers on 50 partitions", f"{_round(show['markers_per_s'])} a second"],
        ["the same on one partition", f"{_round(show['run_per_s'])} a second"],
        ["the first by closed units", f"{_round(show['units_per_s'])} a second"],
        ["300,000 holes of a compacted topic, on 50 partitions", f"{_round(show['holes_per_s'])} a second"],
        ["a new twin whose source begins at offset 100,000,000", f"{show['late_s']:.0f} s"],
    ]
    said = (
        f"Measured by `make show-topics` on {_machine_of_a_show(topics)}, which also carried both clusters and"
        " the load: [topics](evidence/topics.md). `.venv/bin/python -m bench.measure.markers` and"
        " `.venv/bin/python -m bench.measure.closed_units` measure your machine.\n\n"
    )
    return with_sections(page, {"speed": said + table(["what", "figure"], rows).replace("---:", "---")})


def operations(page: str, crossing: str, architecture: str, store: str) -> str:
    """docs/operations.md."""
    show, links, sizes = _line(crossing, "show", "crossing"), _links(architecture), recorded(store)
    rows = [
        [
            f"all processes of a mirror, {show['partitions']:,} partitions",
            f"{show['partitions_memory_mb']} MB",
            _CROSSING,
        ],
        ["all processes of a mirror, 200 small links", f"{links['memory']} MB", _PIECES],
        ["the store, a partition", f"{sizes.partition:.0f} bytes", _STORE],
        [
            f"the store, a partition to which {sizes.producers_max:,} producers or more wrote in the last day",
            _kb(_largest(sizes)),
            _STORE,
        ],
        ["the store, an offset run of a mapped topic's map", f"{sizes.offset_run:.0f} bytes", _STORE],
    ]
    return with_sections(page, {"sizes": table(["measured", "size", "evidence"], rows).replace("---:", "---")})


def production(page: str, bench_page: str) -> str:
    """docs/production.md."""
    slowest_us = max(_ours(bench_page, part)[1] for part in ("plain", "replicated"))
    mb_s = RECORD_BYTES / (2 * slowest_us) // 10 * 10
    said = (
        f"- [ ] **One core for every {mb_s:,.0f} MB/s** of uncompressed 1 KB records without TLS: twice what was"
        f" measured, {slowest_us:g} µs for one record. As much again to spare for catching up after an outage."
        " [Capacity](capacity.md) has the figures, how they were measured, and what is reached first."
    )
    return with_sections(page, {"cores": said})


def versions(page: str, lock: str, pyproject: Mapping[str, Any], bench_page: str) -> str:
    """docs/versions.md."""
    locked = {name: _locked(lock, name) for name in LOCKED}
    machine = machine_of(bench_page)
    rows = [
        [
            "Kafka, both sides",
            f"{KAFKA_3}, {KAFKA_NEWEST}",
            "every scenario on the newest; beliefs, groups, deletions on both",
        ],
        [
            "Kafka, the oldest",
            f"source {KAFKA_OLDEST_SOURCE}, target {KAFKA_OLDEST_TARGET}",
            "transactions, a group, a restart and proofs, between these two",
        ],
        [
            "Kafka below the bounds",
            f"{KAFKA_OLDEST}",
            "starts, logs in, and is spoken to by its clients",
        ],
        ["MirrorMaker 2", KAFKA_NEWEST, "what it copied is adopted; benches run beside it"],
        ["Python", _within(machine, "Python"), f"asked for: {pyproject['project']['requires-python']}"],
        ["Java", _within(machine, "Java"), "asked for: 17 or newer"],
        ["Spark", locked["pyspark"], f"asked for: {_asked(pyproject, 'pyspark')}"],
        ["clients in tests", f"librdkafka of confluent-kafka {locked['confluent-kafka']}", "and Kafka's own tools"],
        ["PostgreSQL", POSTGRES_VERSION.removesuffix(".0"), "the whole suite of the store"],
        ["MariaDB", MARIADB_VERSION, "the same; MySQL is spoken to in the same way, and not tested"],
        ["SQLite", "that of Python", "the same"],
    ]
    return with_sections(page, {"tested": table(["what", "tested with", "how"], rows).replace("---:", "---")})


def _gigabyte(plain: tuple[float, float, float], replicated: tuple[float, float, float]) -> str:
    records_s = 1e9 / RECORD_BYTES
    low, high = (records_s * one[1] / 1e6 for one in (plain, replicated))
    brokers = records_s * replicated[2] / 1e6
    return (
        f"**Reckoned** for 1 KB records, {records_s:,.0f} a second: the mirror's workers take {low:.1f} to"
        f" {high:.1f} cores"
        f" ({plain[1]:g} to {replicated[1]:g} µs of CPU for one record). Plan for twice that, since the"
        " rest of the machine"
        f" works too: {2 * high:.0f} cores. Both clusters' brokers together took {replicated[2]:g} µs"
        " for one record in three"
        f" copies, so about {brokers:.0f} cores for that rate; the source's brokers do their part of it already.\n\n"
        f"Measured at most: {plain[0]:,.0f} records/s, {plain[0] * RECORD_BYTES / 1e6:,.0f} MB/s, by one small"
        " machine that was"
        " both clusters as well. TLS is not in these figures."
    )


def _partitions(show: Mapping[str, Any], sizes: Sizes) -> str:
    times = 20_000 / show["partitions"]
    store_gb = [20_000 * one / 1e9 for one in (sizes.partition, _largest(sizes))]
    return (
        f"**Reckoned** from {show['partitions']:,}: a plan takes {show['partitions_plan_s'] * times:.0f} s, and all"
        " flow"
        f" {show['partitions_flowing_s'] * times / 60:.0f} minutes after a first start, which has to make the"
        " twins; the store"
        f" takes {store_gb[0]:.1g} to {store_gb[1]:.1g} GB. Memory grows with partitions that"
        " are written, not with their number alone; start from"
        f" {show['partitions_memory_mb'] / 1000:.1f} GB for a thousand, and look at yours."
    )


def _link_figures(links: Mapping[str, str]) -> str:
    return (
        f"**Measured** with {links['carried']} of 200 carried when it was looked at: {links['memory']} MB in all"
        " processes,"
        f" {links['threads']} threads and {links['connections']} connections to brokers in the driver,"
        f" {links['workers']} workers of Spark."
    )


def _many_partitions(show: Mapping[str, Any]) -> str:
    return (
        f"planned in {show['partitions_plan_s']:g} s, flowing after {show['partitions_flowing_s']:g} s, a trickle"
        " arrives within"
        f" {show['partitions_late_ms']} ms, {show['partitions_memory_mb']} MB in all"
    )


def _measured(what: str, figures: tuple[float, float, float], evidence: str) -> list[str]:
    rate, cpu_us, _ = figures
    return [what, f"{rate:,.0f} records/s, {cpu_us:g} µs of CPU for one record", evidence]


def _ours(bench_page: str, part: str) -> tuple[float, float, float]:
    """Records/s, our CPU and the brokers' in us a record."""
    page, name = (
        (bench_page.split("### With replication 3")[1], "plain") if part == "replicated" else (bench_page, part)
    )
    row = re.search(rf"^\| {name}: Twinshore, defaults \| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert row, f"the bench's page has a row of {part}"
    return float(row[1].replace(",", "")), float(row[2]), float(row[3])


def _largest(sizes: Sizes) -> float:
    """Bytes of a partition to which as many producers write as are kept."""
    return sizes.partition + sizes.producers_max * sizes.producer


def _links(architecture: str) -> dict[str, str]:
    """What `bench.measure.many_links` showed, where it is written down."""
    text = " ".join(architecture.split())
    found = re.search(
        r"With 200 links, of which (?P<carried>\d+) were carried .*? had (?P<threads>\d+) threads in the driver,"
        r" (?P<connections>\d+) of its connections to brokers, (?P<workers>\d+) workers of Spark,"
        r" and (?P<memory>[\d,]+) MB",
        text,
    )
    assert found, "ARCHITECTURE says what 200 links took"
    said = f"{found['memory']} MB, {found['threads']} threads, {found['workers']} workers"
    said += f", {found['carried']} of them carried by then"
    return {**found.groupdict(), "said": said}


def _line(page: str, kind: str, name: str) -> dict[str, Any]:
    line = re.search(rf'^\{{"{kind}": "{name}".*\}}$', page, re.MULTILINE)
    assert line, "the show's own line is on its page"
    found: dict[str, Any] = json.loads(line[0])
    return found


def _machine_of_a_show(page: str) -> str:
    found = re.search(r"^On .*?, on (\d+ cores \([^)]*\), [^,]*)", page, re.MULTILINE)
    assert found, "the show's page names its machine"
    return found[1]


def _round(value: float) -> str:
    """Two digits are as much as another run would give again."""
    return f"{float(f'{value:.2g}'):,.0f}"


def _kb(size: float) -> str:
    return f"{size / 1000:.0f} KB"


def _locked(lock: str, name: str) -> str:
    found = re.search(rf"^{name}==([\w.]+)", lock, re.MULTILINE)
    assert found, f"{name} is locked"
    return found[1]


def _asked(pyproject: Mapping[str, Any], name: str) -> str:
    return next(str(one).removeprefix(name) for one in pyproject["project"]["dependencies"] if one.startswith(name))


def _within(machine: str, what: str) -> str:
    found = re.search(rf"\b{what} ([\w.]+)", machine)
    assert found, f"the bench's page names its {what}"
    return found[1]
