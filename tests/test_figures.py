"""A figure on a page is a bench's or a show's, in a section that is written from their records, or a bound of the code.

Whoever types a figure of another kind is told here. A bound is checked against the code: a page names no other one.
"""

from __future__ import annotations

import importlib
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from scripts import pages
from twinshore.protection.core.model import ProtectionLevel, ProtectionSettings
from twinshore.protection.watermarks import SPACING_S

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# These are written by the code as a whole.
WHOLE = {DOCS / f"{name}.md" for name in ("benchmarks", "cli", "compatibility", "incidents", "metrics", "settings")}
PAGES = [page for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))] if page not in WHOLE]

COUNTED = "records|offsets|markers|partitions|topics|groups|links|commits|transactions|requests"
PARTS = "threads|connections|workers|cores"
UNIT = rf"(?:[KMGT]i?B|[KMG]bit|bytes|ms|µs|us|s|seconds|minutes|hours|h|days|{COUNTED}|{PARTS}|times|%)"
RATE = r"(?:/s| a second| a minute| a day| per (?:second|core|link))"
FIGURE = re.compile(
    rf"(?<![\w.:-])\d+(?:[ ,]\d{{3}})*(?:\.\d+)? ?{UNIT}(?:{RATE})?(?![\w-])|(?<![\w.])\d[\d, .]*{RATE}(?!\w)"
)
IN_WORDS = re.compile(
    r"\b(?:tens|hundreds?|thousands?|millions?)(?: of \w+)?(?: more)?(?: a|/| per| in a) second"
    r"|\b\w+ tenths?\b|\bpercent\b|\bper cent\b|\btimes (?:as|faster|slower|less|more) \w+"
    r"|\ba (?:quarter|third|fifth)(?: to a \w+)? (?:less|more|faster|slower) ",
    re.IGNORECASE,
)

# What else a page may say, and where the code has it, as `module:NAME`. A name ends in its unit.
ALONE_AFTER_S = ProtectionSettings(ProtectionLevel.SYNC).alone_after_s
POLL_MS = 1000 * SPACING_S
BOUNDS = {
    "any-log": {
        "200 partitions": "replication.task.lookups:TRANSACTION_PARTITIONS_MAX",
        "20 seconds": "replication.task.lookups:TRANSACTION_TIMEOUT_S",
    },
    "deletes": {
        "30 s": "replication.controller:LOG_START_INTERVAL_S",
        "20,000 offsets a second": "replication.core.mapping:MARKERS_PER_S",
    },
    "delay": {
        "3 s": "monitoring.monitor:MIRROR_SUSPECT_S",
        "10 s": "monitoring.notify:CAUSE_RISE_S",
        "30 s": "monitoring.notify:GROUPING_MARGIN_S",
    },
    "from-mirrormaker": {"500,000 records": "replication.adopt:SEARCH_RECORDS_MAX"},
    "groups": {"500 groups": "kafka.consumer_groups:GROUPS_PER_OFFSET_FETCH"},
    "links": {"32 links": "replication.main:EXTRA_LINKS"},
    "mirror": {
        "3 s": "replication.recorder:RATE_HALF_LIFE_S",
        "5 s": "replication.core.lag:CLOCK_SKEW_S_MAX",
        "1 MB": "kafka.protocol.rewrite:MERGED_PLAIN_BYTES_MAX",
        "32 times": "kafka.protocol.rewrite:PLAIN_PER_BYTE_MAX",
    },
    "proxy": {
        "30 seconds": "proxy.operations.groups_move:GATHER_MAX_S",
        "15 seconds": "proxy.client_connection:PARKED_REQUEST_TIMEOUT_S",
        "5 seconds": "routing.core.subscribers:SUBSCRIPTION_LEASE_S",
        "10 seconds": "proxy.core.session:RETRY_TIMEOUT_S",
    },
    "client-protocol": {
        "60 s": "routing.core.subscribers:LEASE_MS_MAX",
        "50 ms": "routing.core.subscribers:SWITCH_POLL_INTERVAL_S",
        "524,288 bytes": "routing.core.home_records:HOME_BYTES_MAX",
    },
    "client": {
        "2 s": "client.discovery.config_service:QUERY_INTERVAL_S",
        "5 s": "client.producer_routing:RECONFIGURE_TIMEOUT_S",
        "30 s": "client.producer:CLOSE_TIMEOUT_S",
        "2,000 records": "client.core.pairs:BUFFERED_RECORDS_MAX",
        "16,777,216 bytes": "client.core.pairs:BUFFERED_BYTES_MAX",
    },
    "promises": {
        "3 s": "replication.task.core.resync:IDLE_CHECK_INTERVAL_S",
        "5 s": "routing.core.subscribers:SUBSCRIPTION_LEASE_S",
    },
    "proof": {
        "200 bytes": "proof.core.model:PREVIEW_BYTES_MAX",
        "2 000 records": "proof.prover:COMMON_START_RECORDS",
        "20 000 offsets": "proof.core.planning:SAMPLE_OFFSETS",
    },
    "simulation": {
        "0.9 seconds": "tests.simulation.connections:LEFT_LANDS_S",
        "4 seconds": "replication.task.core.messages:UNDELIVERED_S_MAX",
    },
    "protection": {
        "5 s": "tests.test_figures:ALONE_AFTER_S",
        "15 s": "proxy.protected_writes:HOLD_S_MAX",
        "3 ms": "tests.test_figures:POLL_MS",
        "3.5 s": "switch.protected_topics:WAIT_S",
    },
    "switch": {
        "10 seconds": "config.model:WRITE_PAUSE_S",
        "15 seconds": "switch.write_access:UNREACHABLE_MS_MAX",
        "3 seconds": "switch.announce:HOLD_MARGIN_S",
        "5 seconds": "routing.core.subscribers:SUBSCRIPTION_LEASE_S",
        "500 records": "switch.core.unreplicated:BATCH_RECORDS",
    },
    "platform": {
        "2 s": "server.snapshot_writer:ROUND_S",
        "12 s": "server.worker:TAKEOVER_S",
        "15 s": "server.snapshot_writer:GROUPS_INTERVAL_S",
    },
    "topologies": {"10 s": "replication.core.topology_view:HEARTBEAT_FRESH_S"},
}
# What no bench measures because it is an example, a size that is asked for, or a bound of others.
EXAMPLES = {
    "any-log": {"15 minutes": "Kafka's own default for transactions"},
    "capacity": {
        "1 GB/s": "asked for",
        "8 Gbit/s": "asked for",
        "25 Gbit/s": "asked for",
        "20 000 partitions": "asked for",
        "200 links": "asked for",
    },
    "live-control": {"1 MB": "an example of a batch", "100 KB/s": "an example of a throttle"},
    "mirror": {"100 %": "what top shows of a full core"},
    "operations": {"100 KB": "Kafka's own default"},
    "troubleshooting": {"100 %": "what top shows of a full core"},
}
UNITS = {
    "ms": 0.001,
    "s": 1,
    "seconds": 1,
    "minutes": 60,
    "hours": 3600,
    "h": 3600,
    "days": 86_400,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
}
MARKED = re.compile(r"<!-- (?!end)([a-z ]+) -->\n(.*?)<!-- end(?: of \1)? -->\n", re.DOTALL)
DEFAULT = re.compile(r"`([a-z_]+)`(?: of the section `[a-z_]+`)? \((\d[\d,.]* ?[A-Za-z]*)[),;]")


def typed(page: str) -> str:
    """What is typed on a page as prose: no section that is written, no example, no message, no code."""
    text = MARKED.sub("", page)
    text = re.sub(r"^( *)```.*?^\1```", "", text, flags=re.MULTILINE | re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">"))


def figures(page: str) -> set[str]:
    """Each figure that is typed, its spaces single."""
    prose = re.sub(r"`[^`\n]*`", "``", DEFAULT.sub("", typed(page)))
    joined = re.sub(r"\s+", " ", prose)
    return {found[0].strip() for pattern in (FIGURE, IN_WORDS) for found in pattern.finditer(joined)}


def number_of(figure: str) -> tuple[float, str]:
    found = re.match(r"([\d ,]*\d(?:\.\d+)?)\s*([A-Za-z%]*)", figure)
    assert found, figure
    return float(re.sub(r"[ ,]", "", found[1])), found[2]


def says(figure: str, value: float, unit: str) -> bool:
    """Whether a page's figure is the value that the code has in this unit."""
    number, word = number_of(figure)
    wanted = value * UNITS.get(unit, 1)
    said = number * UNITS.get(word, 1)
    return (
        abs(said - wanted) <= 0.05 * wanted if word in ("KB", "MB", "GB") else abs(said - wanted) < 1e-9 * max(1, said)
    )


@cache
def defaults() -> dict[str, set[str]]:
    """Each setting's defaults, as docs/settings.md is written from the code."""
    found: dict[str, set[str]] = {}
    for name, default in re.findall(
        r"^\| `(\w+)` \| [^|]* \| `([^`]*)` \|", (DOCS / "settings.md").read_text(), re.MULTILINE
    ):
        found.setdefault(name, set()).add(default)
    return found


def name_of(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_figure_on_a_page_is_written_from_a_record_or_a_bound_of_the_code(page: Path) -> None:
    known = {*BOUNDS.get(page.stem, {}), *EXAMPLES.get(page.stem, {})}
    found = figures(page.read_text())
    assert found - known == set(), (
        "let a bench or a show write it, name the bound of the code here, or say it without a figure"
    )
    assert known - found == set(), "is named here and no more on the page"


@pytest.mark.parametrize(("page", "figure"), [(page, figure) for page, named in BOUNDS.items() for figure in named])
def test_a_bound_on_a_page_is_the_code_s(page: str, figure: str) -> None:
    module, _, name = BOUNDS[page][figure].partition(":")
    value = getattr(importlib.import_module(module if module.startswith("tests.") else f"twinshore.{module}"), name)
    unit = "ms" if "_MS" in name else ""
    assert says(figure, value, unit), f"{name} is {value}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_default_beside_a_setting_is_the_setting_s(page: Path) -> None:
    for name, said in DEFAULT.findall(re.sub(r"\s+", " ", typed(page.read_text()))):
        if name in defaults():
            assert any(says(said, float(one), "") for one in defaults()[name] if re.fullmatch(r"[\d.]+", one)), (
                name,
                said,
            )


def test_each_section_between_marks_is_written_by_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptied, each is written again as it stands: no figure is hidden by marks alone."""
    for name in ("pyproject.toml", "requirements.lock", "ARCHITECTURE.md", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    marked = [page.relative_to(ROOT) for page in PAGES if MARKED.search(page.read_text())]
    for page in marked:
        emptied = MARKED.sub(lambda found: found[0].replace(found[2], ""), (ROOT / page).read_text())
        (tmp_path / page).write_text(emptied)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    written = pages.pages()
    assert len(marked) >= 8
    for page in marked:
        assert written[tmp_path / page] == (ROOT / page).read_text(), page


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("One core carries 100 MB/s of it.", {"100 MB/s"}),
        ("A row has some 115 bytes on SQLite.", {"115 bytes"}),
        ("41 600 a second; 2.4 times less; 80 % of it", {"41 600 a second", "2.4 times", "80 %"}),
        ("It takes 0.2 GB and\n1.5 s, or 3 ms.", {"0.2 GB", "1.5 s", "3 ms"}),
        ("thousands of markers a second, nine tenths of it", {"thousands of markers a second", "nine tenths"}),
        ("`every_s` (5 s), Kafka 3.9, port 5432, `twinshore lab fill` of `10 MB`, 8-bit, 127.0.0.1", set()),
        ("<!-- sizes -->\n10 MB\n<!-- end of sizes -->\n> it was 12 s late\n```sh\nsleep 10 s\n```\n", set()),
    ],
)
def test_what_is_a_figure(said: str, found: set[str]) -> None:
    assert figures(said) == found
