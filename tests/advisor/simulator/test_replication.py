"""The model does what Kafka documents of fetches, in-sync sets, elections and logs that are cut."""

from __future__ import annotations

from tests.advisor.simulator.playing import Played
from twinshore.advisor.core.simulator.model import (
    Anomaly,
    FlushMode,
    ModelAction,
    ModelConfig,
    ProducerAcks,
    TruncationMode,
)

TWO = ModelConfig(records=2, min_insync=2)


def committed(setup: ModelConfig = TWO) -> Played:
    """Record 1 is on all three, and broker 3 alone among followers has heard that it is committed."""
    played = Played(setup)
    played.do(ModelAction.SEND, 1, 1)
    played.fetch(2, 3, 2, 3)
    return played


def test_the_high_watermark_takes_two_rounds_and_a_third_to_be_heard() -> None:
    played = Played(TWO)
    played.do(ModelAction.SEND, 1, 1)
    played.fetch(2, 3)
    assert (played.log(2), played.log(3)) == ([1], [1])
    assert (played.state.of(1).high, played.state.acknowledged) == (0, ())
    played.fetch(2, 3)
    assert (played.state.of(1).high, played.state.acknowledged) == (1, (1,))
    assert (played.state.of(2).high, played.state.of(3).high) == (0, 1)
    assert played.fetch(2).of(2).high == 1


def test_acks_1_waits_for_the_leader_alone_and_acks_0_for_nobody() -> None:
    for acks in (ProducerAcks.LEADER, ProducerAcks.NONE):
        played = Played(ModelConfig(acks=acks, idempotent=False))
        assert played.do(ModelAction.SEND, 1, 1).acknowledged == (1,)
        assert played.log(2) == []
    played = Played(ModelConfig(acks=ProducerAcks.NONE, idempotent=False))
    played.do(ModelAction.CRASH, 1)
    assert played.do(ModelAction.SEND, 1, 1).acknowledged == (1,)
    played = Played(ModelConfig(acks=ProducerAcks.LEADER, idempotent=False))
    played.do(ModelAction.CRASH, 1)
    assert not played.may(ModelAction.SEND, 1, 1)


def test_a_slow_follower_leaves_the_in_sync_set_and_comes_back_once_it_has_caught_up() -> None:
    played = committed()
    played.do(ModelAction.SLOW, 3)
    assert not played.may(ModelAction.FETCH, 3)
    assert played.do(ModelAction.SHRINK, 3).in_sync == (1, 2)
    played.do(ModelAction.SEND, 1, 2)
    played.fetch(2, 2)
    assert played.state.acknowledged == (1, 2)
    played.do(ModelAction.RECOVER, 3)
    assert played.fetch(3).in_sync == (1, 2), "its fetch says that it lacks record 2"
    assert played.fetch(3).in_sync == (1, 2, 3)


def test_acks_all_is_refused_while_too_few_are_in_sync() -> None:
    played = committed()
    played.do(ModelAction.SLOW, 1)
    assert played.do(ModelAction.SHRINK, 1).in_sync == (1,)
    played.do(ModelAction.SEND, 1, 2)
    assert (played.log(1), played.state.acknowledged) == ([1], (1,))


def test_a_record_may_be_appended_and_refused_where_replicas_leave_meanwhile() -> None:
    """NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    played = Played(TWO)
    played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.SLOW, 1)
    played.do(ModelAction.SHRINK, 1)
    assert (played.log(1), played.state.acknowledged, played.state.of(1).waiting) == ([1], (), ())


def test_only_who_is_in_sync_is_elected_unless_unclean_election_is_on() -> None:
    for unclean in (False, True):
        played = Played(ModelConfig(replicas=2, unclean=unclean))
        played.do(ModelAction.SLOW, 2)
        played.do(ModelAction.SHRINK, 2)
        played.do(ModelAction.SEND, 1, 1)
        played.do(ModelAction.CRASH, 1)
        assert played.may(ModelAction.NOTICE, 1, 2) is unclean
        if not unclean:
            assert (played.do(ModelAction.NOTICE, 1).leader, played.state.in_sync) == (0, (1,)), (
                "the last one stays in sync"
            )
            assert not played.may(ModelAction.ELECT, 2)
            played.do(ModelAction.RESTART, 1)
            played.do(ModelAction.ELECT, 1)
            assert played.harms() == set()
        else:
            played.do(ModelAction.NOTICE, 1, 2)
            assert (played.state.in_sync, played.harms()) == ((2,), {Anomaly.LOST})


def test_who_comes_back_cuts_what_its_new_leader_does_not_have() -> None:
    played = Played(ModelConfig(acks=ProducerAcks.LEADER, idempotent=False))
    played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.CRASH, 1)
    played.do(ModelAction.NOTICE, 1, 2)
    played.do(ModelAction.SEND, 2, 2)
    played.do(ModelAction.RESTART, 1)
    assert played.log(1) == [1], "by leader epochs it cuts nothing before it has asked"
    played.fetch(1)
    assert (played.log(1), played.state.of(1).log) == ([2], played.state.of(2).log)


def test_by_the_high_watermark_logs_part_for_good() -> None:
    """KIP-101's second story: the same offset holds another record, and nobody sees it."""
    setup = ModelConfig(
        replicas=2, acks=ProducerAcks.LEADER, idempotent=False, truncation=TruncationMode.HIGH_WATERMARK, unclean=True
    )
    for one in (setup, ModelConfig(replicas=2, acks=ProducerAcks.LEADER, idempotent=False, unclean=True)):
        played = Played(one)
        played.do(ModelAction.SEND, 1, 1)
        played.fetch(2, 2)
        played.do(ModelAction.CRASH, 1)
        played.do(ModelAction.POWER, 2)
        played.do(ModelAction.NOTICE, 1)
        played.do(ModelAction.RESTART, 2)
        played.do(ModelAction.ELECT, 2)
        played.do(ModelAction.SEND, 2, 2)
        played.do(ModelAction.RESTART, 1)
        if one is setup:
            played.do(ModelAction.LET_OFFSETS_FOLLOW, 1)
        played.fetch(1)
        assert played.log(2) == [2]
        assert played.log(1) == ([1] if one is setup else [2])


def test_a_process_that_dies_keeps_its_log_and_a_machine_that_does_keeps_what_is_flushed() -> None:
    played = committed()
    assert [entry.record for entry in played.do(ModelAction.CRASH, 1).of(1).log] == [1]
    played = committed()
    assert played.do(ModelAction.POWER, 1).of(1).log == ()
    assert not committed(ModelConfig(min_insync=2, flush=FlushMode.EACH)).may(ModelAction.POWER, 1)


def test_with_elr_who_left_last_may_lead_and_who_lost_its_log_may_not() -> None:
    played = committed(ModelConfig(min_insync=2, elr=True))
    played.do(ModelAction.SLOW, 1)
    played.do(ModelAction.SHRINK, 1)
    assert [one.eligible for one in played.state.replicas] == [False, True, True]
    played.do(ModelAction.POWER, 1)
    played.do(ModelAction.NOTICE, 1, 2)
    assert (played.state.leader, played.log(2), played.state.in_sync) == (2, [1], (2,))
    played.do(ModelAction.RESTART, 1)
    assert not played.state.of(1).eligible
    played.fetch(1, 1)
    assert (played.state.in_sync, any(one.eligible for one in played.state.replicas)) == ((1, 2), False)


def test_with_elr_the_high_watermark_rests_while_too_few_are_in_sync() -> None:
    for elr in (False, True):
        played = Played(ModelConfig(min_insync=2, elr=elr, acks=ProducerAcks.LEADER, idempotent=False))
        played.do(ModelAction.SLOW, 1)
        played.do(ModelAction.SHRINK, 1)
        assert played.do(ModelAction.SEND, 1, 1).of(1).high == (0 if elr else 1)


def test_with_elr_the_last_leader_leads_again_where_nobody_is_eligible() -> None:
    played = Played(ModelConfig(replicas=1, elr=True))
    played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.CRASH, 1)
    assert played.do(ModelAction.NOTICE, 1).in_sync == ()
    assert not played.do(ModelAction.RESTART, 1).of(1).eligible
    assert played.do(ModelAction.ELECT, 1).in_sync == (1,)


def test_a_leader_that_is_cut_off_acknowledges_with_acks_1_only() -> None:
    played = Played(ModelConfig(acks=ProducerAcks.LEADER, idempotent=False))
    played.do(ModelAction.CUT, 1)
    played.do(ModelAction.NOTICE, 1, 2)
    assert played.do(ModelAction.SEND, 1, 1).acknowledged == (1,)
    assert played.harms() == {Anomaly.LOST}
    played = Played(TWO)
    played.do(ModelAction.CUT, 1)
    played.do(ModelAction.SEND, 1, 1)
    played.do(ModelAction.NOTICE, 1, 2)
    assert (played.log(1), played.state.acknowledged) == ([1], ())
    played.do(ModelAction.GIVE_UP, 1)
    played.do(ModelAction.SEND, 2, 1)
    assert not played.may(ModelAction.SEND, 1, 2), "the producer knows the new leader"
    played.do(ModelAction.HEAL, 1)
    played.fetch(1, 3, 1, 3)
    assert (played.state.acknowledged, played.harms()) == ((1,), set())


def test_a_broker_comes_back_only_once_it_was_missed_and_with_elr_none_that_died_stays_in_sync() -> None:
    for elr in (False, True):
        played = Played(ModelConfig(replicas=2, elr=elr))
        played.do(ModelAction.CRASH, 1)
        played.do(ModelAction.CRASH, 2)
        assert not played.may(ModelAction.RESTART, 2)
        played.do(ModelAction.NOTICE, 1)
        assert played.state.in_sync == (2,)
        assert played.may(ModelAction.RESTART, 2) is not elr
        if elr:
            assert played.do(ModelAction.NOTICE, 2).in_sync == ()
            played.do(ModelAction.RESTART, 2)
            assert not played.state.of(2).eligible


def test_where_some_are_away_a_record_was_acknowledged_that_those_in_sync_have() -> None:
    played = Played(ModelConfig(records=1, min_insync=2, away=1))
    assert [played.log(one) for one in played.state.brokers] == [[1], [1], []]
    assert (played.state.in_sync, played.state.acknowledged) == ((1, 2), (1,))
    played.do(ModelAction.SEND, 1, 2)
    played.fetch(2, 2)
    assert played.state.acknowledged == (1, 2)
    assert played.do(ModelAction.POWER, 1).of(1).log == ()
    flushed = Played(ModelConfig(records=1, min_insync=2, away=2, flush=FlushMode.EACH))
    assert not flushed.may(ModelAction.POWER, 1), "all of its log is on disk"
    assert Played(ModelConfig(records=1)).log(1) == []
