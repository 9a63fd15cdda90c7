"""Thousands of histories of a topic, its twin, its operators: whatever happens, a twin goes only as a last resort."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from twinshore.config.model import Deleted, Follow, Recreated
from twinshore.replication.sync.core.decisions import AskSpans, DeleteTwin, Forget, Remember, TakeBack, Tell
from twinshore.replication.sync.core.lifecycle import (
    LOOKS_MIN,
    Memory,
    Presence,
    SeenTopic,
    Span,
    TopicLook,
    TopicRules,
    Word,
    decide,
)

SEEDS = 3_000
STEPS = 120
LOOK_MS = 5_000
DELAY_S = 30.0
TOPIC = "orders"
BOTH_DELETE = Follow(deleted=Deleted.DELETE, recreated=Recreated.BEGIN_AGAIN, delete_after_s=DELAY_S)


@dataclass
class History:
    """`calm_ms`: since when nothing has happened that takes an announcement back."""

    chance: random.Random
    now_ms: int = 1_000_000
    source: str = "s1"
    made: int = 1
    twin: str = "t1"
    written: int = 0
    paused: bool = False
    kept: bool = False
    follow: Follow = BOTH_DELETE
    memory: Memory = field(default_factory=Memory)
    missed: int = 0
    calm_ms: int = 0
    told: list[str] = field(default_factory=list)
    deleted: int = 0

    def happen(self) -> None:
        """Perhaps one thing."""
        what = self.chance.choice(["gone", "made", "pause", "keep", "write", "policy", "word", *[""] * 14])
        if what == "gone" and self.source:
            self.source = ""
        elif what == "made" and not self.source:
            self.made += 1
            self.source = f"s{self.made}"
        elif what == "pause":
            self.paused = not self.paused
        elif what == "keep":
            self.kept = not self.kept
        elif what == "write":
            self.written += self.chance.choice([0, 0, 5])
            return
        elif what == "policy":
            before = self._policy()
            deleted, recreated = self.chance.choice(list(Deleted)), self.chance.choice(list(Recreated))
            after_s = self.chance.choice([DELAY_S, 2 * DELAY_S])
            self.follow = replace(self.follow, deleted=deleted, recreated=recreated, delete_after_s=after_s)
            if self._policy() == before:
                return
        elif what == "word" and self.source:
            # An operator is shown what the twin holds now.
            self.memory = replace(self.memory, begin=Word(self.now_ms, self.source, ((0, 10 + self.written),)))
            return
        else:
            return
        self.calm_ms = self.now_ms

    def _policy(self) -> tuple[str, float]:
        """Whichever speaks of the topic as it is, and its delay."""
        return self.follow.recreated if self.source else self.follow.deleted, self.follow.delete_after_s

    def look(self) -> None:
        there = SeenTopic(Presence.THERE, self.source, 1) if self.source else SeenTopic(Presence.GONE)
        twin = SeenTopic(Presence.THERE, self.twin, 1) if self.twin else SeenTopic(Presence.GONE)
        self.missed = 0 if self.source else self.missed + 1
        seen = TopicLook(TOPIC, TOPIC, "s1", "t1", there, twin, self.missed)
        against = "paused" if self.paused else "kept" if self.kept else ""
        rules = TopicRules(self.follow, against)
        spans: list[Span] = []
        if self.memory.state is not None:
            self.memory = replace(self.memory, served_s=(self.now_ms - self.memory.since_ms) / 1000)
        acts = decide(seen, self.memory, rules, None, self.now_ms)
        if acts == [AskSpans(TOPIC)]:
            spans = [Span(0, 0, 10 + self.written, 10, 10)]
            acts = decide(seen, self.memory, rules, spans, self.now_ms)
        for act in acts:
            match act:
                case Remember(_, None):
                    self.memory = Memory(begin=self.memory.begin)
                case Remember(_, state, due_ms, source_id):
                    begin = self.memory.begin
                    self.memory = Memory(state, self.now_ms, due_ms, source_id, begin=begin)
                case TakeBack():
                    self.memory = replace(self.memory, begin=None)
                case Tell(_, _, sentence):
                    self.told.append(sentence)
                    assert not self.twin or spans, "a row names what was asked"
                case DeleteTwin():
                    self._delete(spans)
                case Forget():
                    self.memory = Memory()

    def _delete(self, spans: list[Span]) -> None:
        word = self.memory.begin
        assert spans, "what it holds was asked at that moment"
        assert not self.paused and not self.kept
        assert self.twin == "t1"
        if word is not None and word.source_id == self.source:
            assert dict(word.ends)[0] >= 10 + self.written, "nobody agreed to what was written since"
        else:
            assert self.written == 0, "the link did not carry it"
            assert self._policy()[0] in (Recreated.BEGIN_AGAIN, Deleted.DELETE)
            assert self.now_ms - self.calm_ms >= DELAY_S * 1000, "its delay begins anew with each thing that happens"
            assert self.source or self.missed >= LOOKS_MIN
            assert "unless `twinshore mirror keep orders` forbids it" in self.told[-1]
        self.twin = ""
        self.deleted += 1


def test_whatever_happens_a_twin_goes_only_as_a_last_resort() -> None:
    first = random.randrange(1 << 32)
    deleted = 0
    for seed in range(first, first + SEEDS):
        history = History(random.Random(seed))
        try:
            for _ in range(STEPS):
                history.happen()
                history.look()
                history.now_ms += LOOK_MS
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}: {history}") from error
        deleted += history.deleted
    assert deleted > SEEDS // 20, "such histories delete now and then"
