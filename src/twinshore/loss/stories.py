"""Classic losses, and what mends them: scripts that the model plays, as far as it allows each step. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from twinshore.loss.partition import Deed, Move, begin
from twinshore.loss.search import Step, faults, quiet
from twinshore.loss.settings import Acks, Commit, Harm, Reset, Setup, Truncation


@dataclass(frozen=True, slots=True)
class Story:
    """`ends`: the harm that is done in the end, or None. `moral`: what is to be learnt of it."""

    name: str
    title: str
    setup: Setup
    script: tuple[Move, ...]
    ends: Harm | None
    moral: str


def play(story: Story) -> tuple[Step, ...]:
    """ValueError where the model does not allow a step of the script."""
    state, steps = begin(story.setup), []
    for move in story.script:
        able = dict(chain(quiet(story.setup, state), faults(story.setup, state)))
        if move not in able:
            raise ValueError(f"{story.name}: {move} cannot happen; what can: {', '.join(map(str, able))}")
        steps.append(Step(move, state, able[move]))
        state = able[move]
    return tuple(steps)


def _send(record: int, broker: int = 1) -> Move:
    return Move(Deed.SEND, broker, record)


def _fetch(*brokers: int) -> tuple[Move, ...]:
    return tuple(Move(Deed.FETCH, broker) for broker in brokers)


def _gone(broker: int, heir: int = 0, by: Deed = Deed.CRASH) -> tuple[Move, ...]:
    return Move(by, broker), Move(Deed.NOTICE, broker, heir)


_SLOW_LEADER = (Move(Deed.SLOW, 1), Move(Deed.SHRINK, 1))
_BACK = (Move(Deed.RESTART, 1), Move(Deed.ELECT, 1))
_ALONE = Setup(replicas=1, records=1)
_READ = (_send(1), Move(Deed.POLL, 1, 1))
_AGAIN = Setup(replicas=1, commit=Commit.AFTER)
_HANDLED = (Move(Deed.HANDLE, 0, 1), Move(Deed.COMMIT))
_DIES = Move(Deed.READER)
_LAST_WORDS = (_send(1), *_fetch(2, 3, 2, 3), *_SLOW_LEADER, _send(2))

STORIES: Final = (
    Story(
        "two-rounds",
        "A record is acknowledged only in the second round of fetches",
        Setup(records=1, min_insync=2),
        (_send(1), *_fetch(2, 3, 2, 3, 2)),
        None,
        "A follower's fetch brings the record; its next one tells the leader that it has it. Only then the high"
        " watermark rises, and followers hear of that one round later still.",
    ),
    Story(
        "acks-0",
        "acks=0: a record goes to a broker that is down",
        Setup(records=1, acks=Acks.NONE, idempotent=False),
        (Move(Deed.CRASH, 1), _send(1), Move(Deed.NOTICE, 1, 2)),
        Harm.LOST,
        "The producer does not wait for an answer, so nobody learns of the loss.",
    ),
    Story(
        "acks-1",
        "acks=1: the leader dies before a follower has fetched",
        Setup(records=1, acks=Acks.LEADER, idempotent=False),
        (_send(1), *_gone(1, 2), Move(Deed.RESTART, 1), *_fetch(1)),
        Harm.LOST,
        "An election that is clean loses it: being in sync does not mean having the last records. acks=all waits.",
    ),
    Story(
        "acks-1-cut",
        "acks=1: a leader that is cut off goes on acknowledging",
        Setup(records=1, acks=Acks.LEADER, idempotent=False),
        (*_gone(1, 2, Deed.CUT), _send(1), Move(Deed.HEAL, 1), *_fetch(1)),
        Harm.LOST,
        "The old leader does not know yet that it is none. With acks=all it could acknowledge nothing alone.",
    ),
    Story(
        "one-replica",
        "One replica: a machine loses its power",
        _ALONE,
        (_send(1), *_gone(1, 0, Deed.POWER), *_BACK),
        Harm.LOST,
        "acks=all waits for all replicas in sync, and that is one. Kafka leaves it to the system when records are on"
        " disk, and to other replicas to have them.",
    ),
    Story(
        "refused",
        "Consistency before availability: with too few in sync writers are refused, and nothing is lost",
        Setup(replicas=2, records=1, min_insync=2),
        (*_gone(2), _send(1), Move(Deed.RESTART, 2), *_fetch(2), _send(1), *_fetch(2, 2), *_gone(1, 2)),
        None,
        "With acks=all the producer hears NOT_ENOUGH_REPLICAS and tries again until a second replica is back. So what"
        " is acknowledged outlives the leader. With three replicas one may be away without a refusal.",
    ),
    Story(
        "min-insync-1",
        "acks=all, min.insync.replicas=1: all in sync means the leader alone",
        Setup(records=1),
        (*_SLOW_LEADER, _send(1), *_gone(1, 0, Deed.POWER), *_BACK),
        Harm.LOST,
        "A leader that answers its followers too slowly puts them out of the in-sync set, and acks=all waits for itself"
        " alone. With min.insync.replicas=2 the record is refused instead.",
    ),
    Story(
        "last-in-sync",
        "acks=all, min.insync.replicas=2: the last replica in sync loses its disk's last writes",
        Setup(min_insync=2),
        (*_LAST_WORDS, *_gone(1, 0, Deed.POWER), *_BACK),
        Harm.LOST,
        "Record 2 is refused, but record 1 is lost though two others have it: only who was in sync last may lead,"
        " whatever became of its log. Eligible leader replicas (KIP-966) mend it.",
    ),
    Story(
        "eligible",
        "The same with eligible leader replicas: nothing is lost",
        Setup(min_insync=2, elr=True),
        (*_LAST_WORDS, *_gone(1, 2, Deed.POWER)),
        None,
        "Who left the in-sync set while too few stayed may still lead, for nothing was acknowledged without it since.",
    ),
    Story(
        "unclean",
        "Unclean election: a replica that lags is made the leader",
        Setup(replicas=2, records=1, unclean=True),
        (
            Move(Deed.SLOW, 2),
            Move(Deed.SHRINK, 2),
            _send(1),
            *_gone(1, 2),
            Move(Deed.RECOVER, 2),
            Move(Deed.RESTART, 1),
            *_fetch(1),
        ),
        Harm.LOST,
        "The old leader still has the record when it comes back, and cuts it: followers' logs are cut to the leader's.",
    ),
    Story(
        "truncation-high-watermark",
        "Before leader epochs: a follower cuts a record that was acknowledged",
        Setup(records=1, min_insync=2, truncation=Truncation.HIGH_WATERMARK),
        (_send(1), *_fetch(2, 3, 2, 3), *_gone(1, 3), Move(Deed.FOLLOW, 2), *_gone(3, 2)),
        Harm.LOST,
        "Broker 2 has the record, but not yet heard that it is below the high watermark. As it turns to a new leader it"
        " cuts it to fetch it again, and is the leader itself before it can.",
    ),
    Story(
        "truncation-epoch",
        "The same with leader epochs (KIP-101): nothing is lost",
        Setup(records=1, min_insync=2),
        (_send(1), *_fetch(2, 3, 2, 3), *_gone(1, 3), *_fetch(2), *_gone(3, 2)),
        None,
        "A follower asks the new leader where the epoch of its own last record ended, and cuts only what lies beyond.",
    ),
    Story(
        "retry-new-leader",
        "The leader dies before it has answered, and the producer sends again: repeated, not lost",
        Setup(records=1, min_insync=2, idempotent=False),
        (_send(1), *_fetch(2, 3), *_gone(1, 2), _send(1, 2), *_fetch(3, 3)),
        Harm.TWICE,
        "The new leader had the record already. Idempotence would have it recognised by its sequence number, which"
        " replicas learn with the record.",
    ),
    Story(
        "retry-twice",
        "An answer is lost, and the producer sends again",
        Setup(replicas=1, records=1, idempotent=False),
        (Move(Deed.UNANSWERED, 1, 1), _send(1)),
        Harm.TWICE,
        "The producer cannot know whether the first one was appended.",
    ),
    Story(
        "retry-once",
        "The same with idempotence: the record is there once",
        _ALONE,
        (Move(Deed.UNANSWERED, 1, 1), _send(1)),
        None,
        "The broker knows the record by its producer's sequence number.",
    ),
    Story(
        "auto-commit",
        "A place is committed before its record is handled",
        Setup(replicas=1, records=1, commit=Commit.AUTO),
        (*_READ, Move(Deed.COMMIT), _DIES),
        Harm.LOST,
        "A timer commits what was handed out. It does so in clients that commit by one of their own, and in Java where"
        " another thread handles what poll() gave.",
    ),
    Story(
        "commit-after",
        "A place is committed after its record was handled",
        Setup(replicas=1, records=1, commit=Commit.AFTER),
        (*_READ, Move(Deed.HANDLE, 0, 1), _DIES, Move(Deed.POLL, 1, 1), Move(Deed.HANDLE, 0, 1)),
        Harm.TWICE,
        "Nothing is lost, and what was not committed is handled again: handle a record twice like once.",
    ),
    Story(
        "together",
        "The place is kept with the result, in one transaction: neither lost nor repeated",
        Setup(replicas=1, records=1, commit=Commit.TOGETHER),
        (*_READ, _DIES, Move(Deed.POLL, 1, 1), Move(Deed.HANDLE, 0, 1), _DIES),
        None,
        "Wherever the consumer dies, result and place are both there or both not: the application's own store has both,"
        " and a consumer that starts seeks to the place there.",
    ),
    Story(
        "newest",
        "auto.offset.reset=latest: what was not committed at a restart is never read again",
        replace(_AGAIN, reset=Reset.LATEST),
        (*_READ, _DIES, _send(2), Move(Deed.SEEK, 1)),
        Harm.LOST,
        "The group had committed nothing yet, so the next consumer begins at the end: the record that was in hand is"
        " gone for this group, and so is what came meanwhile.",
    ),
    Story(
        "oldest",
        "auto.offset.reset=earliest: the oldest is what retention has left",
        replace(_AGAIN, reset=Reset.EARLIEST),
        (_send(1), _send(2), Move(Deed.DELETE, 0, 1), Move(Deed.SEEK, 1), Move(Deed.POLL, 1, 2)),
        Harm.LOST,
        "Earliest repeats rather than skips, and still cannot bring back what was deleted before it was read. Whoever"
        " is slower than retention loses in silence.",
    ),
    Story(
        "offsets-retention",
        "A group rests until its place is forgotten, and latest skips what came",
        replace(_AGAIN, reset=Reset.LATEST),
        (*_READ, *_HANDLED, Move(Deed.REST), _send(2), Move(Deed.SEEK, 1)),
        Harm.LOST,
        "offsets.retention.minutes begins when the last member leaves. A group that comes back later is a new one.",
    ),
    Story(
        "offsets-retention-earliest",
        "The same with earliest: all that is there is handled again",
        replace(_AGAIN, records=1, reset=Reset.EARLIEST),
        (*_READ, *_HANDLED, Move(Deed.REST), Move(Deed.SEEK, 1), Move(Deed.POLL, 1, 1), Move(Deed.HANDLE, 0, 1)),
        Harm.TWICE,
        "Nothing is skipped, and everything that retention has left comes again.",
    ),
)
