"""README and the pages by need: their figures are those of the records, their messages those of the code."""

from __future__ import annotations

import ast
import importlib
import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.kit import pictures
from bench.kit.page import PAGE
from scripts import pages
from twinshore.cli.app import EXIT_CODES
from twinshore.config.settings import parse_settings
from twinshore.lab.background_clusters import BackgroundCluster, settings_snippet

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
TROUBLES = (DOCS / "troubleshooting.md").read_text()


def test_the_figures_beside_mirrormaker_are_those_of_the_bench() -> None:
    """Each ratio in README is that of the bench's own line, whatever the tables were rounded to."""
    line = re.search(r'^\{"bench": "mirror".*\}$', PAGE.read_text(), re.MULTILINE)
    assert line
    found = json.loads(line[0])
    wanted = [found["plain_rate"], 1 / found["plain_cpu"], 1 / found["p50"]]
    assert re.findall(r"\| ([\d.]+) times (?:more|less) \|", README) == [f"{one:.1f}" for one in wanted]
    for ink in ("light", "dark"):
        drawn = (DOCS / "pictures" / f"beside-mirrormaker-{ink}.svg").read_text()
        assert re.findall(r">([\d.]+)×<", drawn) == [f"{one:.1f}" for one in wanted]


def test_other_figures_of_the_bench_are_other_pictures() -> None:
    bench = PAGE.read_text()
    other = re.sub(r'"plain_rate": [\d.]+', '"plain_rate": 9.9', bench)
    assert other != bench
    changed = {
        path.name
        for path, text in pictures.drawings(other, pictures.RECORDED_DEMO.read_text()).items()
        if text != path.read_text()
    }
    assert changed == {"beside-mirrormaker-light.svg", "beside-mirrormaker-dark.svg"}
    assert "9.9 times more" in pictures.with_figures(README, other)


def test_the_terminal_shows_the_last_lines_of_a_demo_that_ended_well() -> None:
    said = pictures.RECORDED_DEMO.read_text().splitlines()
    assert re.fullmatch(r"demo: identical, \d+ records, 12 partitions", said[-1])
    drawn = ElementTree.parse(DOCS / "pictures" / "demo-light.svg").getroot()
    lines = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert lines == ["$ make demo", "...", *said[-pictures.DEMO_LINES :]]
    shown = said[-pictures.DEMO_LINES :]
    assert any("none twice, none left out" in line for line in shown)
    assert any("acknowledged: " in line for line in shown)


def test_each_picture_is_shown_in_light_and_dark_and_says_what_it_shows() -> None:
    shown = set(re.findall(r'docs/pictures/([a-z-]+\.svg)"', README))
    assert shown == {path.name for path in (DOCS / "pictures").glob("*.svg")}
    for name in shown:
        drawn = ElementTree.parse(DOCS / "pictures" / name).getroot()
        title = drawn.find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text
    assert len(re.findall(r'<img alt="[^"]{40,}"', README)) == len(shown) // 2


def test_the_settings_are_the_very_lines_of_the_lab() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    block = next(one for one in blocks if "127.0.0" in one)
    clusters = parse_settings(block, name="README", env={}).clusters
    stand = [BackgroundCluster(one.name, "", "up", tuple(one.bootstrap), "", ()) for one in clusters.values()]
    said = [f"# {one.name}: {','.join(one.bootstrap)}" for one in stand]
    assert block == "\n".join([*said, "", "# settings, for twinshore.toml", settings_snippet(stand)])


@cache
def said_by_the_code() -> str:
    """Each text of the code, as it reads: parts that are put in are an ellipsis."""
    texts = [(ROOT / "scripts" / "setup.sh").read_text()]
    for path in sorted((ROOT / "src" / "twinshore").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (one.value if isinstance(one, ast.Constant) else "..." for one in node.values)
                texts.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    tables = (path.read_text().strip()[1:-1] for path in sorted((ROOT / "src" / "twinshore").rglob("*.json")))
    texts.extend(re.sub(r"{[^{}]*}", "...", table) for table in tables)
    return "\n".join(texts)


def quoted() -> list[str]:
    rows = [line.split(" | ")[0] for line in TROUBLES.splitlines() if line.startswith("| `")]
    return [one for row in rows for one in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("message", quoted())
def test_each_message_that_is_quoted_is_one_of_the_code(message: str) -> None:
    for part in message.split("..."):
        assert part.strip(" ():;,") in said_by_the_code(), message


def test_the_table_of_exit_codes_is_the_code_s() -> None:
    page = (DOCS / "cli.md").read_text()
    assert re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE) == [
        (str(c), says) for c, says in EXIT_CODES.items()
    ]


def test_each_page_can_be_reached_from_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s:]+\.md)(?:#[^)]*)?\)", page.read_text())
        waiting += [(page.parent / link).resolve() for link in links]
    assert set(DOCS.rglob("*.md")) <= reached


def test_each_heading_that_a_link_names_is_there() -> None:
    missing = []
    for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]):
        for link, mark in re.findall(r"\]\(([^)#\s:]*)#([^)]+)\)", page.read_text()):
            target = (page.parent / link).resolve() if link else page
            heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            if mark not in {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}:
                missing.append(f"{page.name}: {link}#{mark}")
    assert missing == []


def test_what_prometheus_scrapes_is_what_the_settings_serve() -> None:
    page = (DOCS / "production.md").read_text()
    (settings,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (scrape,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    yaml: Any = importlib.import_module("yaml")
    read = yaml.safe_load(scrape)
    parts = [part for one in read["scrape_configs"] for part in one["static_configs"]]
    ports = {address.rpartition(":")[2] for part in parts for address in part["targets"]}
    proxy, *_ = re.findall(r"^```toml\n(.*?)^```", (DOCS / "proxy.md").read_text(), re.MULTILINE | re.DOTALL)
    served = tomllib.loads(settings)["mirror"]["metrics_port"], tomllib.loads(proxy)["proxy"]["metrics_port"]
    assert ports == {str(port) for port in served}
    rules = {Path(one).name for one in read["rule_files"]}
    assert rules == {path.name for path in (ROOT / "deploy" / "prometheus").iterdir()}


def test_each_alert_that_the_checklist_names_is_there() -> None:
    named = set(re.findall(r"`(Twinshore\w+)`", (DOCS / "production.md").read_text()))
    rules = "".join(path.read_text() for path in (ROOT / "deploy" / "prometheus").iterdir())
    assert named
    assert named <= set(re.findall(r"alert: (\w+)", rules))


def test_the_pages_of_figures_are_drawn() -> None:
    assert {"capacity.md", "versions.md", "README.md"} <= {path.name for path in pages.writers()}
