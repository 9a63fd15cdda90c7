"""`twinshore mirror recreate`: which topics it agrees to, and which it refuses; `forget` where it is the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testkit.errors import raises
from tests.cli import asking
from tests.cli.asking import LINK, opened, write_settings
from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.incident_policy import POLICY_KEEP_TWIN, POLICY_TOPIC, IncidentKind
from twinshore.config.model import OffsetRun, SourceOffset, TargetOffset
from twinshore.replication.operations import twins
from twinshore.replication.sync.core.decisions import DeletionState, RememberState
from twinshore.replication.sync.core.lifecycle import (
    DELETE_APPROVAL,
    Approval,
    ObservedTopic,
    Presence,
    TwinRange,
    approval_from_json,
    lifecycle_row,
)
from twinshore.state.core.values import Incident, TwinRow

pytestmark = pytest.mark.usefixtures("short_patience")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The exact topic orders and the mapped topic bills, both made again."""
    found = write_settings(tmp_path, f'[links."{LINK}"]\nmode = "mapped"\n')
    with opened(found) as store:
        store.twins.save([TwinRow(LINK, "orders", 0, "aa", "bb", 0, 0, 1)])
        offset_run = OffsetRun(SourceOffset(10), TargetOffset(70), 0, 0)
        store.offset_runs.adopt([(TwinRow(LINK, "bills", 0, "cc", "dd", 10, 0, 1), offset_run)])
        for topic in ("orders", "bills"):
            row = Incident(LINK, topic, -1, IncidentKind.RECREATED_TOPIC, -1, -1, POLICY_TOPIC, f"{topic} again.")
            store.incidents.add(row, now_ms=1)
    return found


def agreed(file: Path) -> list[str]:
    with opened(file) as store:
        return [row.subject for row in store.link_states.of(LINK, "recreate")]


def recreate(file: Path, *words: str) -> str:
    return asking.run(file, "mirror", "recreate", *words)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[TwinRange]:
    """What the old twin of orders holds when the verb asks; the source's topic was made again."""
    held = [TwinRange(0, 0, 1_000, 1_000, 1_000)]
    twin = {"east": ObservedTopic(Presence.THERE, "zz", 1), "west": ObservedTopic(Presence.THERE, "bb", 1)}
    monkeypatch.setattr(twins, "observe_topics", lambda cluster, names: dict.fromkeys(names, twin[cluster.name]))
    monkeypatch.setattr(twins, "read_twin_ranges", lambda *_: held)
    return held


def word_of(file: Path) -> Approval | None:
    with opened(file) as store:
        (row,) = store.link_states.of(LINK, "recreate")
        return approval_from_json(row.value, row.since_ms)


@pytest.mark.usefixtures("shown")
def test_a_topic_that_was_made_again_is_agreed_to(file: Path) -> None:
    said = recreate(file, "orders", "--dry-run")
    assert "would start again" in said
    assert "its twin holds orders-0 0 to 999" in said
    assert agreed(file) == []
    assert "orders starts again" in recreate(file, "orders")
    assert agreed(file) == ["orders"]
    word = word_of(file)
    assert word is not None
    assert (word.source_id, word.ends) == ("zz", ())


def test_what_the_link_did_not_carry_is_shown_and_needs_a_word_of_its_own(file: Path, shown: list[TwinRange]) -> None:
    shown[0] = TwinRange(0, 0, 51_000, 1_000, 1_000)
    with raises(RefusedError, "replication.twin-last-copy", topic="orders") as found:
        recreate(file, "orders")
    assert "--even-unreplicated" in found.value.hint
    assert agreed(file) == []
    said = recreate(file, "orders", "--even-unreplicated")
    assert "this link replicated it" in said
    word = word_of(file)
    assert word is not None
    assert word.ends == ((0, 51_000),), "and nothing beyond"


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize("verb", [("link", "pause", LINK), ("mirror", "keep", "orders"), ("mirror", "keep", "--all")])
def test_what_must_not_be_deleted_does_not_begin_again(file: Path, verb: tuple[str, ...]) -> None:
    asking.run(file, *verb)
    with pytest.raises(RefusedError, match="the twin of orders is not deleted"):
        recreate(file, "orders")
    back = ("link", "resume", LINK) if verb[0] == "link" else (*verb, "--undo")
    asking.run(file, *back)
    assert "orders starts again" in recreate(file, "orders")


def test_a_word_that_keeps_is_shown_and_what_still_holds_is_said(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "PATIENCE_S", 0.1)
    said = asking.run(file, "mirror", "keep", "orders")
    assert "exists is unknown: " in said, "no cluster answers, and a no needs no proof"
    assert "of orders is kept" in said
    assert "its twins are kept" in asking.run(file, "mirror", "keep", "--all")
    assert "any of its twins" in asking.run(file, "status")
    said = asking.run(file, "mirror", "keep", "orders", "--undo")
    assert "all of the link: `twinshore mirror keep --all --undo`" in said
    asking.run(file, "mirror", "keep", "orders")
    assert "order of its own: orders" in asking.run(file, "mirror", "keep", "--all", "--undo")
    assert "the twins of orders" in asking.run(file, "status")
    (seen,) = json.loads(asking.run(file, "status", "--json"))["links"]
    assert (seen["keeps_all"], seen["kept_topics"]) == (False, ["orders"])
    assert "may be deleted again" in asking.run(file, "mirror", "keep", "orders", "--undo")
    assert "keeps all its twins" in asking.run(file, "mirror", "keep", "--all", "--undo")
    assert "kept by operators" not in asking.run(file, "status")
    with opened(file) as store:
        assert len(store.audit.rows(LINK)) == 6, "each with its word"


def test_with_several_links_the_link_must_be_said(tmp_path: Path) -> None:
    file = write_settings(
        tmp_path, '[clusters.north]\nbootstrap = ["127.0.0.1:3"]\n[links."east->west"]\n[links."east->north"]\n'
    )
    with raises(ConfigError, "config.several-links", count=2) as found:
        recreate(file, "orders")
    assert "--link" in found.value.hint


def test_a_topic_to_keep_must_be_known(file: Path) -> None:
    with raises(ConfigError, "replication.topic-unknown", topic="order", near="; did you mean orders?"):
        asking.run(file, "mirror", "keep", "order")
    with raises(ConfigError, "replication.one-of-two"):
        asking.run(file, "mirror", "keep")


def test_a_deletion_that_waits_is_agreed_to_and_no_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file.read_text() + f'[links."{LINK}".follow]\ndeleted = "delete"\n'
    file.write_text(text)
    gone = {"east": ObservedTopic(Presence.GONE), "west": ObservedTopic(Presence.THERE, "bb", 1)}
    held = [TwinRange(0, 0, 1_000, 1_000, 1_000)]
    monkeypatch.setattr(twins, "observe_topics", lambda cluster, names: dict.fromkeys(names, gone[cluster.name]))
    monkeypatch.setattr(twins, "read_twin_ranges", lambda *_: held)
    with raises(ConfigError, "replication.no-deletion-waits", topic="orders"):
        asking.run(file, "mirror", "delete", "orders")
    with opened(file) as store:
        store.link_states.remember([lifecycle_row(LINK, RememberState("orders", DeletionState.NEEDS_APPROVAL), 1)])
    assert "would delete" in asking.run(file, "mirror", "delete", "orders", "--dry-run")
    assert "of orders within seconds" in asking.run(file, "mirror", "delete", "orders")
    with opened(file) as store:
        assert [row.subject for row in store.link_states.of(LINK, DELETE_APPROVAL)] == ["orders"]
    held[0] = TwinRange(0, 0, 1_001, 1_000, 1_000)
    with pytest.raises(RefusedError, match="orders-0 holds offsets 1000 to 1000"):
        asking.run(file, "mirror", "delete", "orders")
    held[0] = TwinRange(0, 0, 1_000, 1_000, 1_000)
    file.write_text(text.replace('"delete"', '"keep"'))
    with pytest.raises(RefusedError, match="deleted = 'keep' now"):
        asking.run(file, "mirror", "delete", "orders")


def test_a_topic_that_nothing_stopped_is_not(file: Path) -> None:
    with raises(ConfigError, "replication.topic-not-recreated", topic="order", near="; did you mean orders?"):
        recreate(file, "order")


@pytest.mark.parametrize("words", [["bills"], ["bills", "--dry-run"]])
def test_a_mapped_topic_is_refused_with_the_way_that_there_is(file: Path, words: list[str]) -> None:
    with pytest.raises(RefusedError, match="bills of east->west is mapped") as found:
        recreate(file, *words)
    assert "`twinshore mirror forget bills`" in found.value.hint
    assert agreed(file) == []


def test_a_forgotten_topic_waits_for_no_word_any_more(file: Path) -> None:
    with opened(file) as store:
        for kind in (IncidentKind.DELETED_TOPIC, IncidentKind.FOREIGN_WRITE):
            store.incidents.add(Incident(LINK, "bills", -1, kind, -1, -1, POLICY_KEEP_TWIN, "it is kept"), now_ms=2)
    asking.run(file, "mirror", "forget", "bills")
    with opened(file) as store:
        assert [row.incident.topic for row in store.incidents.rows(LINK, open_only=True)] == ["orders"]
        assert store.offset_runs.reached(LINK) == {}
