"""`twinshore groups` where no cluster is needed: offsets translated by the store alone, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.config.settings import load_settings
from twinshore.groups.core.commit_rules import TranslatedOffset
from twinshore.groups.view import open_translator
from twinshore.state.core.values import ProgressRecord, TwinRow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_settings(tmp_path, f'[links."{LINK}"]\nnaming = "prefix"\n')


@pytest.fixture
def known(file: Path) -> Path:
    """A link that has carried orders."""
    with opened(file) as store:
        store.twins.save([TwinRow(LINK, "orders", part, "a", "b", 0, 0, 1) for part in range(2)])
    return file


def run(file: Path, *words: str) -> str:
    return asking.run(file, "groups", *words)


def test_an_offset_is_translated_both_ways_without_a_cluster(known: Path) -> None:
    assert run(known, "translate", "7", "--topic", "orders") == f"{LINK}: orders-0 offset 7 is east.orders-0 offset 7\n"
    back = json.loads(run(known, "translate", "9", "--topic", "east.orders", "--partition", "1", "--back", "--json"))
    assert back["offsets"] == [
        {
            "link": LINK,
            "topic": "east.orders",
            "partition": 1,
            "offset": 9,
            "to_topic": "orders",
            "to": 9,
            "reached": True,
            "end": None,
        }
    ]


def test_an_offset_behind_the_logs_end_is_said_to_be_there(known: Path) -> None:
    with opened(known) as store:
        store.progress.record(
            [
                ProgressRecord(
                    link=LINK,
                    topic="orders",
                    partition=0,
                    from_offset=0,
                    to_offset=6500,
                    records=6500,
                    bytes=100,
                    batches=1,
                    source_end=6560,
                    first_ms=0,
                    last_ms=1,
                )
            ]
        )
    for offset, told in ((6560, ""), (6561, "; when last seen, the log of orders-0 ended at 6560")):
        said = run(known, "translate", str(offset), "--topic", "orders")
        assert said == f"{LINK}: orders-0 offset {offset} is east.orders-0 offset {offset}{told}\n"
    back = run(known, "translate", "10000000", "--topic", "east.orders", "--back")
    assert "east.orders-0 " in back and "6500" in back
    (line,) = json.loads(run(known, "translate", "10000000", "--topic", "orders", "--json"))["offsets"]
    assert line["end"] == 6560


def test_behind_all_that_was_carried_to_a_mapped_twin_its_end_is_said(known: Path) -> None:
    carried = OffsetRun(SourceOffset(0), TargetOffset(40), 100, 0)
    with opened(known) as store:
        store.progress.record(
            [
                ProgressRecord(
                    link=LINK,
                    topic="orders",
                    partition=0,
                    from_offset=0,
                    to_offset=100,
                    records=100,
                    bytes=100,
                    batches=1,
                    source_end=100,
                    first_ms=0,
                    last_ms=1,
                    lag_records=0,
                    offset_runs=(carried,),
                )
            ]
        )
    assert "carried" not in run(known, "translate", "140", "--topic", "east.orders", "--back")
    assert "carried east.orders-0 up to 140 only" in run(known, "translate", "141", "--topic", "east.orders", "--back")


def test_the_same_from_python(known: Path) -> None:
    with opened(known) as store:
        translator = open_translator(load_settings(known, {}), LINK, store)
        assert translator.forward("orders", 1, 5) == translator.back("east.orders", 1, 5) == TranslatedOffset(5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("translate", "7", "--topic", "order"), "did you mean orders"),
        (("translate", "7", "--topic", "orders", "--partition", "2"), "no partition orders-2 on east"),
        (("translate", "seven", "--topic", "orders"), "is not an offset"),
        (("--group", "["), "not a regular expression"),
        (("move", "("), "not a regular expression"),
    ],
)
def test_what_cannot_be_is_named(known: Path, words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(known, *words)
    assert told in str(caught.value)


def test_without_a_store_it_says_what_to_do(file: Path) -> None:
    with raises(ConfigError, "state.no-store"):
        run(file)
    assert not (file.parent / "store.db").exists()


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_group_that_nobody_knows_is_an_error_for_programs_too(known: Path, words: tuple[str, ...]) -> None:
    # Asks no cluster: the settings name no link here.
    known.write_text(known.read_text().partition("[links.")[0])
    with raises(ConfigError, "groups.no-offsets", group="NOBODY"):
        run(known, "translate", "NOBODY", *words)
