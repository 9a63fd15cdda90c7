"""What the pages say is there: generated pages, targets, verbs, links, settings, and the table of features."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import pages, site_pages
from tests.each_file import each_of
from twinshore.config.settings import parse_settings
from twinshore.replication.sync.core.decisions import PROMOTION_SETTINGS, SYNCED_SETTINGS, UNSYNCED_SETTINGS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(path for kind in ("py", "json") for path in (ROOT / "src").rglob(f"*.{kind}"))
# Pages that a target of make writes, with figures of the machine it runs on.
WRITTEN_BY_MAKE = set(re.findall(r"writes (docs/[a-z/-]+\.md)", (ROOT / "Makefile").read_text()))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))

# A row is never dropped from the table; "not yet" is an honest entry.
ROWS = [
    *("0.1", "0.2", "0.3", "0.4", "0.5", "0.beyond", "0.ours"),
    *("1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11"),
    *("2.1", "2.2", "2.3", "2.4", "2.5", "2.6"),
    *("3.1", "3.2", "3.3", "3.4", "3.ours"),
    *("4.1", "4.2", "4.3", "4.4", "4.5", "4.6", "4.7", "4.8", "4.9", "4.10", "4.11"),
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_in(page: Path) -> list[str]:
    """Each line of a fenced block and each inline span of a page."""
    text = page.read_text()
    fences = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line for fence in fences for line in fence.splitlines()] + inline


def features() -> list[list[str]]:
    """The rows of docs/features.md: number, what, status, code, test, command."""
    lines = (ROOT / "docs" / "features.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [row for row in cells if re.match(r"\d", row[0])]


@pytest.mark.parametrize("page", sorted(pages.writers()), ids=name_of)
def test_a_generated_page_is_what_the_code_says(page: Path) -> None:
    assert page.read_text() == pages.writers()[page](), "run make docs"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_make_target_named_exists(page: Path) -> None:
    named = {target for line in code_in(page) for target in re.findall(r"(?:^|\s)make ([a-z][a-z-]*)", line)}
    assert named <= TARGETS


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_verb_named_exists(page: Path) -> None:
    known = pages.verbs()
    groups = {verb.split()[0] for verb in known if " " in verb}
    for line in code_in(page):
        for words in re.findall(r"(?:^|\s|/)twinshore((?: [a-z][a-z0-9|-]*)+)", line):
            first, *rest = words.split()
            assert first in known, line
            if first in groups and rest:
                assert all(f"{first} {word}" in known for word in rest[0].split("|")), line


@each_of(SOURCES)
def test_each_verb_that_a_hint_or_docstring_names_exists(source: Path) -> None:
    named = re.findall(r"`twinshore((?: [a-z][a-z0-9-]*)+)", source.read_text())
    assert {words.strip() for words in named} <= pages.verbs()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_option_named_exists(page: Path) -> None:
    known = pages.options()
    for line in code_in(page):
        for words in re.findall(r"(?:^|\s|/)twinshore((?: [a-z][a-z-]*)+[^#]*)", line):
            assert set(re.findall(r"(?<=\s)(--[a-z][a-z-]*)", words)) <= known, line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_somewhere(page: Path) -> None:
    assert pages.broken_links(page) == []


def test_a_link_to_a_missing_page_or_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One `two`\n")
    (tmp_path / "a.md").write_text("[x](b.md#one-two) [x](b.md) [x](b.md#three) [x](c.md) [x](#here)\n## Here\n")
    assert pages.broken_links(tmp_path / "a.md") == ["b.md#three", "c.md"]


def test_the_index_has_each_page_once() -> None:
    listed = [file for items in site_pages.shelves((ROOT / "docs/index.md").read_text()).values() for _, file in items]
    pages_of_docs = {str(page.relative_to(ROOT / "docs")) for page in PAGES if "docs" in page.parts}
    assert sorted(listed) == sorted(pages_of_docs - {"index.md"})


@each_of([*PAGES, *SOURCES])
def test_each_page_that_is_named_exists(file: Path) -> None:
    named = set(re.findall(r"(?<![\w/])docs/[a-z-]+\.md", file.read_text()))
    assert {name for name in named - WRITTEN_BY_MAKE if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_is_quoted_wherever_a_shell_would_take_it_for_a_redirection(page: Path) -> None:
    for line in code_in(page):
        if re.search(r"(?:^|\s|/)(?:twinshore|make) [a-z-]", line):
            bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", line)
            assert "->" not in bare.partition(" #")[0], line


def test_the_page_names_each_setting_that_follows_waits_or_stays() -> None:
    rows = [line for line in (ROOT / "docs" / "topics-follow.md").read_text().splitlines() if ".ms`, " in line]
    assert [set(re.findall(r"`([^`]+)`", row.split(" | ")[0])) for row in rows] == [
        SYNCED_SETTINGS,
        PROMOTION_SETTINGS,
        UNSYNCED_SETTINGS,
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_settings_example_is_accepted(page: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        assert parse_settings(block, name=name_of(page), env={}).links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_python_example_runs(page: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        subprocess.run([sys.executable, "-c", block], check=True, timeout=180, cwd=ROOT)


def test_the_table_of_features_has_each_row_once() -> None:
    assert [row[0] for row in features()] == ROWS


@pytest.mark.parametrize("row", features(), ids=lambda row: row[0])
def test_a_row_says_the_truth_about_itself(row: list[str]) -> None:
    assert len(row) == 6
    status, code, test, command = row[2:]
    assert re.match(r"(done|partly|not yet)\b", status)
    if status.startswith("not yet"):
        assert (code, test, command) == ("", "", ""), "what is not there yet has no code to show"
        return
    assert code, "a row that is begun names its code"
    assert test, "a row that is begun names its test"
    assert re.search(r"`(make|twinshore|.*pytest) ", command), "a row that is begun names a command"
    for place in re.findall(r"`([^`]+)`", f"{code} {test}"):
        assert_exists(place)


def assert_exists(place: str) -> None:
    """A path of the repository, or a test in it as `path::name`."""
    path, _, name = place.partition("::")
    assert (ROOT / path).exists(), f"{path} does not exist"
    if name:
        tree = ast.parse((ROOT / path).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in names, f"{path} has no {name}"
