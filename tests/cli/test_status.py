"""What `twinshore status` says of a store: live, silent, empty, and with something wrong."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from testkit.errors import raises
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.config.incident_policy import POLICY_STOP, POLICY_WAIT, IncidentKind, IncidentSide
from twinshore.replication.core.incident_rules import describe_outage_with_cause
from twinshore.replication.core.lag import LagStatus, TopicLag, lag_row, shared_fetch_row
from twinshore.replication.task.core.shared_read import JOINED_KEY, QUEUED_KEY, READ_KEY
from twinshore.state.core.values import Incident, LinkStatus, ProgressRecord, ProofRow, ProofState, TwinRow
from twinshore.state.store import Store, open_store

pytestmark = pytest.mark.claim(
    "groups",
    "status-words",
    "status names what is paused, says no lag that nobody has seen, and of a mirror that was killed where it ran",
)

LINK = "east->west"
SETTINGS = """
[store]
url = "sqlite:///{store}"
[clusters.east]
bootstrap = ["east:9092"]
[clusters.west]
bootstrap = ["west:9092"]
[links."east->west"]
[links."west->east"]
"""


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    """Settings with two links, whose clusters do not exist: nobody may ask them."""
    file = tmp_path / "twinshore.toml"
    file.write_text(SETTINGS.format(store=tmp_path / "store.db"))
    return file


@pytest.fixture
def store(settings_file: Path) -> Iterator[Store]:
    """The store of these settings, with two partitions of `orders`."""
    with open_store(f"sqlite:///{settings_file.parent / 'store.db'}") as opened:
        opened.progress.record([_receipt(0, 60, 100), _receipt(1, 40, 40)])
        yield opened


def _receipt(partition: int, to_offset: int, source_end: int) -> ProgressRecord:
    return ProgressRecord(
        link=LINK,
        topic="orders",
        partition=partition,
        from_offset=0,
        to_offset=to_offset,
        records=to_offset,
        bytes=5_000_000,
        batches=3,
        source_end=source_end,
        first_ms=1,
        last_ms=2,
        lag_records=source_end - to_offset,
    )


def _word(ago_s: float, sentence: str = "2 partitions on 1 task", state: str = "flowing") -> LinkStatus:
    updated_ms = int((time.time() - ago_s) * 1000)
    return LinkStatus(
        LINK, "a-host process 7 1a2b3c4d", state, sentence, updated_ms, 1, 2, 12_345.6, 7_890_000.0, 40, 1.25, 9.5
    )


def _looked(store: Store, ago_s: float, unseen: int = 0) -> None:
    """The mirror looked at the source's ends so long ago."""
    topics = {"orders": TopicLag(2, 100, 140, 40, unseen)}
    word = LagStatus(int((time.time() - ago_s) * 1000), 40, 2, unseen, topics)
    store.link_states.remember([lag_row(LINK, word)])


def _status(settings_file: Path, *words: str) -> str:
    register_verbs()
    result = CliRunner().invoke(app, ["status", "--settings", str(settings_file), *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def _json(settings_file: Path, *words: str) -> dict[str, Any]:
    found = json.loads(_status(settings_file, "--json", *words))["links"]
    return {link["link"]: link for link in found}


def test_a_link_that_flows_shows_its_figures(store: Store, settings_file: Path) -> None:
    register_verbs()  # what it imports takes a while, in which a word grows old
    store.links.save_status(_word(0))
    _looked(store, 0)
    lines = _status(settings_file).splitlines()
    assert re.match(r"east->west +flowing +1 +12,346 +7.89 +40 +1.2 +9.5 +\d+$", lines[1].rstrip())
    assert "east->west: 2 partitions on 1 task" in [line.rstrip() for line in lines]


def test_how_a_link_with_a_silent_mirror_stands_is_unknown_and_what_was_known_has_its_age(
    store: Store, settings_file: Path
) -> None:
    store.links.save_status(_word(100))
    _looked(store, 100)
    lines = [line.rstrip() for line in _status(settings_file).splitlines()]
    assert re.match(r"east->west +unknown +- +- +- +40 \(10\d s old\) +- +- +10\d$", lines[1])
    assert any(re.match(r"east->west: .* 10\d s .*\(a-host process 7\)", line) for line in lines)
    assert any(
        re.match(r"east->west: lag unknown: none of its twins .* last seen 40, 10\d s ago", line) for line in lines
    )
    found = _json(settings_file)[LINK]
    assert (found["state"], found["last_state"], found["stale"]) == ("unknown", "flowing", True)
    assert (found["lag_records"], found["last_lag_records"], found["lag_seen_by"]) == (None, 40, "store")
    assert found["lag_age_s"] == pytest.approx(100, abs=9)
    assert (found["records_per_s"], found["p99_ms"]) == (None, None)


def test_a_mirror_that_only_stood_by_is_not_said_to_be_killed(store: Store, settings_file: Path) -> None:
    store.links.save_status(_word(100, "carried by b-host process 3; standing by", "standby"))
    text = _status(settings_file)
    assert re.search(
        r"east->west: no status for 10\d s, .* replicated nothing \(a-host process 7\): start `twinshore", text
    )
    assert "killed" not in text


def test_what_a_clock_wrote_that_is_ahead_is_not_new(store: Store, settings_file: Path) -> None:
    for ago_s in (-2, -600):
        store.links.save_status(_word(ago_s))
        _looked(store, ago_s)
        found = _json(settings_file)[LINK]
        if ago_s == -2:
            assert (found["state"], found["lag_seen_by"]) == ("flowing", "mirror")
            assert found["age_s"] >= 0.0, "never below: a word is not younger than now"
    assert (found["state"], found["stale"], found["lag_seen_by"], found["lag_records"]) == (
        "unknown",
        True,
        "store",
        None,
    )
    text = _status(settings_file)
    ahead = r"the mirror's clock is ahead of this one by 10 min"
    assert re.search(rf"east->west: {ahead}", text)
    assert re.search(rf"east->west: lag unknown: .* last seen 40, {ahead}", text)
    assert re.search(r"east->west +unknown .* 40 \(clock 10 min ahead\)", text)


def test_a_mirror_that_was_stopped_in_good_order_is_called_stopped_however_long_ago(
    store: Store, settings_file: Path
) -> None:
    store.links.save_status(_word(700, "the mirror was stopped in good order", "stopped"))
    _looked(store, 700)
    text = _status(settings_file)
    assert re.search(r"east->west +stopped +- +- +- +40 \(12 min old\)", text)
    said = "east->west: the mirror was stopped in good order, 12 min ago; nothing is replicated until"
    assert said in text
    assert (_json(settings_file)[LINK]["state"], _json(settings_file)[LINK]["stale"]) == ("stopped", False)


def test_a_lag_whose_source_is_not_seen_any_more_is_old_though_the_mirror_speaks(
    store: Store, settings_file: Path
) -> None:
    store.links.save_status(_word(0, "east does not answer", "waiting"))
    _looked(store, 60)
    assert re.search(r"east->west +waiting +1 +12,346 +7.89 +40 \(6\d s old\)", _status(settings_file))
    assert _json(settings_file)[LINK]["lag_records"] is None
    _looked(store, 1, unseen=1)
    assert re.search(r"40 \(1 partitions unseen\)", _status(settings_file))
    (topic,) = _json(settings_file, "--topics")[LINK]["topics"]
    assert (topic["lag_records"], topic["last_lag_records"]) == (None, 40)


def test_staleness_allows_for_rarer_receipts(store: Store, settings_file: Path) -> None:
    store.links.save_status(_word(10))
    assert _json(settings_file)[LINK]["stale"] is True
    settings_file.write_text(settings_file.read_text() + "[mirror]\nlease_s = 12\nprogress_s = 3.9\n")
    assert _json(settings_file)[LINK]["stale"] is False


def test_a_link_of_a_broadcast_says_which_and_how_it_is_read_there(store: Store, settings_file: Path) -> None:
    settings_file.write_text(
        settings_file.read_text().replace(f'[links."{LINK}"]', f'[links."{LINK}"]\nbroadcast = "b"')
    )
    store.links.save_status(_word(0))
    told = {JOINED_KEY: 2.0, QUEUED_KEY: 3_000_000.0, READ_KEY: 1.0}
    store.link_states.remember([shared_fetch_row(LINK, told, 2, 7e6, int(time.time() * 1000))])
    sentence = "2 of 2 partitions read together with others; it reads 7.00 MB/s of the source itself; 3.00 MB wait"
    assert f"{LINK}: of broadcast b: {sentence}" in _status(settings_file)
    found = _json(settings_file)
    assert (found[LINK]["broadcast"]["name"], found[LINK]["broadcast"]["queue_bytes"]) == ("b", 3_000_000)
    assert found["west->east"]["broadcast"] is None
    store.links.save_status(_word(60))
    assert _json(settings_file)[LINK]["broadcast"]["queue_bytes"] is None


def test_a_link_that_never_ran_says_so(store: Store, settings_file: Path) -> None:
    assert store.links.statuses() == ()
    text = _status(settings_file, "--link", "west->east")
    assert "twinshore mirror run" in text
    assert LINK not in text


def test_topics_sum_their_partitions(store: Store, settings_file: Path) -> None:
    store.links.save_status(_word(0))
    assert "topics" not in _json(settings_file)[LINK]
    _looked(store, 0)
    (topic,) = _json(settings_file, "--topics")[LINK]["topics"]
    assert topic == {
        "recovery_point_s": None,
        "topic": "orders",
        "partitions": 2,
        "stopped": 0,
        "twin_end": 100,
        "source_end": 140,
        "lag_records": 40,
        "last_lag_records": 40,
        "records": 100,
        "bytes": 10_000_000,
        "paused": False,
        "excluded": False,
        "refused": False,
    }
    assert re.search(r"orders +2 +0 +100 +140 +40 +10.0", _status(settings_file, "--topics"))


def test_what_is_paused_of_a_link_that_flows_is_named(store: Store, settings_file: Path) -> None:
    store.twins.save([TwinRow(LINK, topic, 0, "aa", "bb", 0, 0, 1) for topic in ("orders", "bills")])
    store.links.save_status(_word(0))
    _looked(store, 0)
    assert "paused" not in _status(settings_file)
    settings_file.write_text(settings_file.read_text().replace('[links."west->east"]', ""))
    register_verbs()
    for pattern in ("ord.*", "nothing"):
        words = ["link", "pause", LINK, "--topic", pattern, "--settings", str(settings_file)]
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    text = _status(settings_file, "--topics")
    assert "east->west: paused by operators: topics 'ord.*' (orders)" in text
    assert "'nothing' (none" in text
    assert "orders (paused)" in text and "bills (paused)" not in text
    found = _json(settings_file, "--topics")[LINK]
    assert (found["state"], found["paused_topics"]) == ("flowing", {"ord.*": ["orders"], "nothing": []})
    assert {one["topic"]: one["paused"] for one in found["topics"]} == {"orders": True}


def test_a_lag_of_twins_that_no_look_has_seen_yet_is_not_zero(store: Store, settings_file: Path) -> None:
    store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
    store.links.save_status(_word(0))
    store.link_states.remember([lag_row(LINK, LagStatus(int(time.time() * 1000), 0, 0, 0))])
    found = _json(settings_file)[LINK]
    assert (found["state"], found["lag_records"]) == ("flowing", None), "the mirror looked before there was a twin"


@pytest.mark.parametrize(
    ("age_s", "state", "lag"), [(700, "stopped", None), (0, "waiting", None), (0, "flowing", 0)], ids=str
)
def test_of_a_link_without_a_twin_a_lag_is_known_where_it_flows(
    store: Store, settings_file: Path, age_s: int, state: str, lag: int | None
) -> None:
    """One that could never begin has no twin whose end could be compared with what its source holds."""
    other = "west->east"
    store.links.save_status(replace(_word(age_s, "as it is", state), link=other))
    store.link_states.remember([lag_row(other, LagStatus(int((time.time() - age_s) * 1000), 0, 0, 0))])
    assert "lag unknown: " not in _status(settings_file, "--link", other), "nobody is asked"
    found = _json(settings_file, "--link", other)[other]
    assert (found["state"], found["lag_records"]) == (state, lag)


def test_open_incidents_are_shown_whole_and_closed_ones_are_not(store: Store, settings_file: Path) -> None:
    sentence = "[bold]offsets 5 to 9 of orders-1 are gone " + "and this is a long sentence " * 20
    gap = Incident(LINK, "orders", 1, IncidentKind.RETENTION_GAP, 5, 9, POLICY_STOP, sentence, IncidentSide.SOURCE)
    row = store.incidents.add(gap, now_ms=1)
    expected = f"east->west: open incident {row.id}, retention gap, orders-1: {sentence}".rstrip()
    assert expected in [line.rstrip() for line in _status(settings_file).splitlines()]
    (told,) = _json(settings_file)[LINK]["incidents"]
    said = {"sentence": sentence, "policy": POLICY_STOP.words, "effect": "stops", "side": "source"}
    assert {name: told[name] for name in said} == said
    store.incidents.close(row.id, now_ms=2)
    assert "open incident" not in _status(settings_file)


def test_an_incident_of_the_whole_link_names_no_topic(store: Store, settings_file: Path) -> None:
    away = Incident(LINK, "", -1, IncidentKind.TARGET_AWAY, -1, -1, POLICY_WAIT, "the target west does not answer")
    row = store.incidents.add(away, now_ms=1)
    expected = f"east->west: open incident {row.id}, target away: the target west does not answer"
    assert expected in [line.rstrip() for line in _status(settings_file).splitlines()]


def test_a_cluster_that_does_not_answer_is_told_once_for_all_its_links(store: Store, settings_file: Path) -> None:
    cause = "west 127.0.0.1:1: cannot connect"
    rows = []
    for link, side, kind in (
        (LINK, "target", IncidentKind.TARGET_AWAY),
        ("west->east", "source", IncidentKind.SOURCE_AWAY),
    ):
        sentence = describe_outage_with_cause(side, "west", cause)
        rows.append(store.incidents.add(Incident(link, "", -1, kind, -1, -1, POLICY_WAIT, sentence), now_ms=1_000))
        store.links.save_status(replace(_word(0, f"{sentence}; 2 partitions on 1 task", "waiting"), link=link))
    said = [line.rstrip() for line in _status(settings_file).splitlines()]
    assert "\n".join(said).count(cause) == 1
    ids = ", ".join(str(row.id) for row in rows)
    since = f"since 1970-01-01 00:00:01 UTC, 2 links (east->west, west->east), open incidents {ids}"
    assert f"west does not answer: {cause}; {since}" in said
    assert sum("2 partitions on 1 task" in line for line in said) == 2
    assert len(_json(settings_file)[LINK]["incidents"]) == 1, "programs read each by itself"


def test_a_name_in_an_incident_begins_no_line(store: Store, settings_file: Path) -> None:
    forged = "east->west: 2 partitions on 1 task"
    store.incidents.add(
        Incident(LINK, "", -1, IncidentKind.RIGHTS_LOST, -1, -1, POLICY_WAIT, f"user a\n{forged}"), now_ms=5
    )
    said = CliRunner().invoke(app, ["status", "--settings", str(settings_file)], catch_exceptions=False).output
    assert f"user a\\n{forged}" in said.replace("\n", "")
    assert not [line for line in said.splitlines() if line.startswith(forged)]


def test_looking_makes_no_store(settings_file: Path) -> None:
    register_verbs()
    with raises(ConfigError, "state.no-store") as caught:
        CliRunner().invoke(app, ["status", "--settings", str(settings_file)], catch_exceptions=False)
    assert "twinshore mirror run" in caught.value.hint
    assert not (settings_file.parent / "store.db").exists()


def test_it_says_how_long_ago_all_that_is_proven_was_read(settings_file: Path, store: Store) -> None:
    three_h_ago = int(time.time() * 1000) - 3 * 3_600_000
    row = ProofRow(LINK, "orders", 0, "exact", ProofState.IDENTICAL, 0, 60, -1, 60, 60, "", "", "aa", "bb", three_h_ago)
    store.proofs.save([replace(row, bytes_read=36_000_000, oldest_ms=three_h_ago)])
    assert "proven" not in _status(settings_file, "--link", LINK), "nobody asked for a proof that never rests"
    settings_file.write_text(settings_file.read_text() + "\n[proof]\nbeside_mirror = true\n")
    (line,) = [line for line in _status(settings_file, "--link", LINK).splitlines() if "proven" in line]
    assert line.startswith(f"{LINK}: ") and "36 MB" in line and "36 s" in line and "orders-0" in line
    values = _json(settings_file)[LINK]
    assert values["proof_pass"] == {"place": "orders-0", "read_ms": three_h_ago, "size": 36_000_000, "seconds": 36.0}


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_watched_it_shows_what_changes_until_it_is_interrupted(
    store: Store, settings_file: Path, *, terminal: bool
) -> None:
    store.links.save_status(_word(0))
    command = [sys.executable, "-m", "twinshore.cli", "status", "--watch", "--settings", str(settings_file)]
    ours, theirs = os.openpty() if terminal else os.pipe()
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        try:
            _read_until(ours, "2 partitions on 1 task", lambda: store.links.save_status(_word(0)))
            changed = "the whole link is paused"
            _read_until(ours, changed, lambda: store.links.save_status(_word(0, changed, "paused")))
            process.send_signal(signal.SIGINT)
            _read_until(ours, None)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(ours)


def _read_until(end: int, said: str | None, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Until it has said so, or, where that is None, has ended; `meanwhile` is done now and then."""
    text, until_s = "", time.monotonic() + 120
    while said is None or said not in text:
        assert time.monotonic() < until_s, text
        meanwhile()
        if select.select([end], [], [], 0.2)[0]:
            try:
                found = os.read(end, 1 << 16)
            except OSError:  # a terminal whose last process has gone
                found = b""
            if not found:
                assert said is None, text
                return
            text += found.decode(errors="replace")
