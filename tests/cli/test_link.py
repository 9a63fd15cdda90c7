"""`twinshore link`: what it shows, changes, refuses, and tells the audit. No cluster is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError
from twinshore.config.model import Link
from twinshore.kafka.clock import wall_ms
from twinshore.replication.core.lag import shared_fetch_row
from twinshore.replication.core.link_config import explain_no_effect
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY
from twinshore.state.core.values import TwinRow

LINKS = f"""
[links."{LINK}"]
topics = ["orders.*"]
[links."{LINK}".control]
throttle_bytes_s = 5000
[clusters.south]
bootstrap = ["127.0.0.1:3"]
[links."west->south"]
[links."south->east"]
topics = ["bills.*"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_settings(tmp_path, LINKS)


def run(file: Path, *words: str) -> str:
    return asking.run(file, "link", *words)


def held(file: Path) -> dict[str, dict[str, object]]:
    (shown,) = json.loads(run(file, "list", "--link", LINK, "--json"))
    found: dict[str, dict[str, object]] = shown
    return found


def test_a_list_says_what_holds_and_from_where(file: Path) -> None:
    assert held(file)["throttle_bytes_s"] == {"value": 5000, "from": "settings"}
    assert not (file.parent / "store.db").exists(), "looking makes no store"
    run(file, "throttle", LINK, "9000")
    run(file, "pause", LINK, "--topic", "orders-old")
    assert held(file)["throttle_bytes_s"] == {"value": 9000, "from": "store"}
    assert held(file)["paused_topics"] == {"value": ["orders-old"], "from": "store"}
    said = run(file, "list")
    assert "east->west (naming same)" in said
    assert '  topics = ["orders.*"]  from the settings' in said
    run(file, "reset", LINK)
    assert held(file)["throttle_bytes_s"] == {"value": 5000, "from": "settings"}


def test_a_list_says_which_broadcast_a_link_belongs_to_and_how_it_is_read(file: Path) -> None:
    file.write_text(file.read_text().replace(f'[links."{LINK}"]', f'[links."{LINK}"]\nbroadcast = "b"'))
    assert "how it is read" in run(file, "list")
    assert held(file)["broadcast"]["name"] == "b"
    with opened(file) as store:
        told = {JOINED_KEY: 2.0, QUEUED_KEY: 0.0, READ_KEY: 0.0}
        store.link_states.remember([shared_fetch_row(LINK, told, 3, 0.0, wall_ms())])
    said = run(file, "list")
    assert said.count("of broadcast") == 1
    assert "read together with others; it reads nothing itself; 0.00 MB" in said
    assert (held(file)["broadcast"]["joined"], held(file)["broadcast"]["reads"]) == (2, False)


def test_a_list_says_what_a_fresh_queue_drops(file: Path) -> None:
    assert (str(held(file)["queue"]), "its queue" in run(file, "list")) == ("keep", False)
    text = file.read_text().replace(f'[links."{LINK}"]', f'[links."{LINK}"]\nbroadcast = "b"')
    file.write_text(f'{text}\n[links."{LINK}".queue]\npolicy = "fresh"\nmax_age_s = 2\n')
    said = run(file, "list")
    assert "what is older than 2 s; new twins are mapped" in said
    assert str(held(file)["queue"]) == "fresh"


def test_a_dry_run_says_the_same_and_changes_nothing(file: Path) -> None:
    said = run(file, "pause", LINK, "--dry-run")
    assert all(one in said for one in (LINK, "paused", "false", "true"))
    assert not (file.parent / "store.db").exists()
    assert "from false to true" in run(file, "pause", LINK)
    assert "from true to false" in run(file, "resume", LINK, "--dry-run")
    assert held(file)["paused"]["value"] is True
    assert run(file, "pause", LINK) == "east->west: nothing to change\n"


def test_resuming_the_link_leaves_the_pauses_of_single_topics(file: Path) -> None:
    run(file, "pause", LINK, "--topic", "orders-old")
    run(file, "pause", LINK)
    assert run(file, "resume", LINK) == (
        "east->west: paused changes from true to false\n"
        "east->west: still paused: topics 'orders-old'; end it with --topic 'orders-old', or --all\n"
    )
    assert held(file)["paused_topics"]["value"] == ["orders-old"]
    assert "nothing to change\neast->west: still paused: topics 'orders-old'" in run(file, "resume", LINK)
    with raises(ConfigError, "replication.one-of-two", one="--all", other="--topic"):
        run(file, "resume", LINK, "--all", "--topic", "orders-old")
    run(file, "pause", LINK)
    said = run(file, "resume", LINK, "--all")
    assert "still paused" not in said
    assert (held(file)["paused"]["value"], held(file)["paused_topics"]["value"]) == (False, [])


def test_a_word_that_meets_no_topic_holds_and_says_so(file: Path) -> None:
    unknown = "whether a topic matches 'orders-eu' is not known: east does not answer; it holds for one that appears"
    assert unknown in run(file, "pause", LINK, "--topic", "orders-eu")
    assert held(file)["paused_topics"]["value"] == ["orders-eu"]
    with opened(file) as store:
        store.twins.save([TwinRow(LINK, "orders-eu", 0, "a", "b", 0, 0, 1)])
    assert "not known" not in run(file, "throttle", LINK, "100", "--topic", "orders-eu")
    assert "not known" not in run(file, "throttle", LINK, "0", "--topic", "orders-else")


def test_what_meets_no_topic_is_told_with_the_nearest() -> None:
    link = Link("east", "west", ("orders.*",))
    assert explain_no_effect("orders-eu", link, {"orders-eu", "bills"}) == ""
    near = "no topic of east matches 'orders-ue' now; did you mean orders-eu?; it holds for one that appears"
    assert explain_no_effect("orders-ue", link, {"orders-eu", "bills"}) == near
    assert "'x'" in explain_no_effect("x", link, set())
    not_admitted = "the link does not admit bills, which 'bill.*' matches: nothing of it is replicated"
    assert explain_no_effect("bill.*", link, {"orders-eu", "bills"}) == not_admitted


def test_each_change_is_told_to_the_audit_with_who_made_it(file: Path) -> None:
    run(file, "priority", LINK, "orders-now", "100")
    run(file, "filter", LINK, "--topics", "orders.*", "--topics", "lists", "--exclude", "x")
    with opened(file) as store:
        told = [(row.kind, row.subject, row.before, row.after) for row in store.audit.rows(LINK)]
        assert told == [
            ("control", "exclude", '["__.*"]', '["x"]'),
            ("control", "topics", '["orders.*"]', '["orders.*", "lists"]'),
            ("control", "priorities", "[]", '[["orders-now", 100]]'),
        ]
        assert all(row.outcome.startswith("by ") for row in store.audit.rows(LINK))
        assert store.controls.version(LINK) == 2


def test_a_filter_that_could_loop_is_refused_before_anything_changes(file: Path) -> None:
    with raises(ConfigError, "replication.links-loop", links="east->west, west->south and south->east"):
        run(file, "filter", LINK, "--topics", "bills-new")
    with pytest.raises(ConfigError, match="south->east"):
        run(file, "filter", LINK, "--topics", ".*", "--dry-run")
    assert held(file)["topics"]["from"] == "settings"


def test_a_link_that_the_settings_lack_is_from_the_store(file: Path) -> None:
    run(file, "add", "south->west", 'topics=["lists"]')
    (shown,) = json.loads(run(file, "list", "--link", "south->west", "--json"))
    assert shown["topics"] == {"value": ["lists"], "from": "store"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("pause", "east->wets"), "no link 'east->wets' in the settings; did you mean east->west?"),
        (("pause", LINK, "--topic", "("), "paused_topics: '(' is not a regular expression"),
        (("throttle", LINK, "--", "-5"), "throttle_bytes_s: is -5"),
        (("priority", LINK, "x", "101"), "is 101, must be 1 to 100"),
        (("resume", LINK, "--topic", "x"), "'x' is not paused"),
        (("filter", LINK), "no filter is given"),
    ],
)
def test_what_cannot_be_is_refused(file: Path, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run(file, *words)
    assert sentence in caught.value.message
