"""What a producer sends again, what a broker knows by its sequence, and what a consumer's commits lose or repeat."""

from __future__ import annotations

import pytest

from tests.advisor.simulator.playing import Played
from twinshore.advisor.core.simulator.model import (
    Anomaly,
    AutoOffsetReset,
    CommitMode,
    ModelAction,
    ModelConfig,
    TruncationMode,
)


@pytest.mark.parametrize("idempotent", [False, True])
def test_what_was_not_answered_is_sent_again_and_kept_once_with_idempotence(idempotent: bool) -> None:
    played = Played(ModelConfig(replicas=1, idempotent=idempotent))
    played.do(ModelAction.UNANSWERED, 1, 1)
    assert played.state.acknowledged == ()
    played.do(ModelAction.SEND, 1, 1)
    assert played.log(1) == ([1] if idempotent else [1, 1])
    assert played.harms() == (set() if idempotent else {Anomaly.TWICE})


def test_without_retries_what_was_not_answered_is_not_sent_again() -> None:
    played = Played(ModelConfig(replicas=1, idempotent=False, retries=False))
    played.do(ModelAction.UNANSWERED, 1, 1)
    assert not played.may(ModelAction.SEND, 1, 1)
    assert played.may(ModelAction.SEND, 1, 2)


def refused_first(setup: ModelConfig) -> Played:
    """Record 1 comes while too few are in sync; then they are enough again."""
    played = Played(setup)
    played.do(ModelAction.SLOW, 2)
    played.do(ModelAction.SHRINK, 2)
    if setup.in_flight:
        played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.RECOVER, 2)
    played.fetch(2)
    return played


def test_a_record_overtakes_one_that_was_refused_unless_the_producer_is_idempotent_or_waits() -> None:
    played = refused_first(ModelConfig(replicas=2, min_insync=2, idempotent=False))
    played.do(ModelAction.SEND, 1, 2)
    played.do(ModelAction.SEND, 1, 1)
    played.fetch(2, 2)
    assert (played.log(1), played.harms()) == ([2, 1], {Anomaly.REORDERED})
    played = refused_first(ModelConfig(replicas=2, min_insync=2))
    played.do(ModelAction.SEND, 1, 1)
    assert not played.may(ModelAction.SEND, 1, 1)
    assert played.log(1) == [1]
    assert not refused_first(ModelConfig(replicas=2, min_insync=2, idempotent=False, in_flight=False)).may(
        ModelAction.SEND, 1, 2
    )


def test_an_idempotent_producer_leaves_no_gap() -> None:
    played = refused_first(ModelConfig(replicas=2, min_insync=2))
    assert played.do(ModelAction.SEND, 1, 2).of(1).log == (), "OUT_OF_ORDER_SEQUENCE_NUMBER"


def reading(commit: CommitMode) -> Played:
    """The consumer has record 1 in its hand."""
    played = Played(ModelConfig(replicas=1, commit=commit))
    played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.POLL, 1, 1)
    return played


def test_a_timer_may_commit_what_is_not_handled_yet() -> None:
    played = reading(CommitMode.AUTO)
    played.do(ModelAction.COMMIT)
    played.do(ModelAction.READER)
    assert played.harms() == {Anomaly.LOST}


def test_who_commits_before_handling_loses_and_does_not_repeat() -> None:
    played = reading(CommitMode.BEFORE)
    assert not played.may(ModelAction.HANDLE, 0, 1)
    played.do(ModelAction.COMMIT)
    played.do(ModelAction.READER)
    assert played.harms() == {Anomaly.LOST}


def test_who_commits_after_handling_repeats_and_does_not_lose() -> None:
    played = reading(CommitMode.AFTER)
    assert not played.may(ModelAction.COMMIT)
    played.do(ModelAction.HANDLE, 0, 1)
    played.do(ModelAction.READER)
    played.do(ModelAction.POLL, 1, 1)
    played.do(ModelAction.HANDLE, 0, 1)
    assert played.harms() == {Anomaly.TWICE}


def test_a_consumer_reads_only_below_the_high_watermark() -> None:
    played = Played(ModelConfig(replicas=2, commit=CommitMode.AFTER))
    played.do(ModelAction.SEND, 1, 1)
    assert not played.may(ModelAction.POLL, 1, 1)
    played.fetch(2, 2)
    assert played.may(ModelAction.POLL, 1, 1)


def test_latest_waits_until_a_new_leader_knows_what_is_committed() -> None:
    """The new leader has not heard yet that record 1 is committed: its old high watermark would lead before it."""
    for truncation in TruncationMode:
        played = Played(ModelConfig(commit=CommitMode.BEFORE, reset=AutoOffsetReset.LATEST, truncation=truncation))
        played.do(ModelAction.SEND, 1, 1)
        played.fetch(2, 3, 2, 3)
        played.do(ModelAction.POLL, 1, 1)
        played.do(ModelAction.COMMIT)
        played.do(ModelAction.HANDLE, 0, 1)
        played.do(ModelAction.REST)
        played.do(ModelAction.CRASH, 1)
        played.do(ModelAction.NOTICE, 1, 2)
        assert played.may(ModelAction.SEEK, 2) is (truncation is TruncationMode.HIGH_WATERMARK)
        assert not played.may(ModelAction.POLL, 2, 1)
        if truncation is TruncationMode.EPOCH:
            played.fetch(3, 3)
            assert played.do(ModelAction.SEEK, 2).reader is not None
            assert not played.may(ModelAction.POLL, 2, 1), "it is behind record 1, and nothing repeats"
