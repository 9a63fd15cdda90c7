"""Whether somebody wrote during a drill whom a switch could not have held. Only asks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from twinshore.fleet.sentences import listed
from twinshore.kafka.cluster import KafkaCluster
from twinshore.switch.decision import Done
from twinshore.switch.hands.log_ends import log_ends
from twinshore.switch.hands.rights import look
from twinshore.switch.hands.words import ClusterWords
from twinshore.switch.write_rules import denial

NAMED_MAX = 5


def looked_back(old: KafkaCluster, words: ClusterWords, done: Done) -> Done:
    """The end of a drill, with what was written to topics on which no rule can keep writers out."""
    record = done.record
    open_to = denial(look(old, record.names())).open_to_all
    if not open_to:
        return done
    ends = log_ends(old, record.topics).ends
    written = {one.topic for one in record.topics if one.topic in open_to and ends[one.topic] != one.points}
    followed = words.followed(record)
    if unheld := written - followed:
        return replace(done, record=replace(record, why=would_turn_back(unheld)))
    return replace(done, sentence=f"{done.sentence}; {in_words(open_to, written)}")


def would_turn_back(topics: Collection[str]) -> str:
    """Of topics that were written though none of their writers follows homes."""
    some = listed(sorted(topics), NAMED_MAX)
    return f"{some} was written during the drill by writers that nothing can hold: a switch would have turned back"


def in_words(open_to: Collection[str], written: Collection[str]) -> str:
    """Of topics that no rule can shut, and of those that clients write which follow homes, and maybe others too."""
    if not written:
        return f"nobody wrote to {listed(sorted(open_to), NAMED_MAX)} during the drill"
    some = listed(sorted(written), NAMED_MAX)
    follow = "clients that follow homes write there, and a switch turns back where anybody else does"
    return f"{some} was written during the drill: {follow}"
