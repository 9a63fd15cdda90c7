"""Thousands of histories of a topic, its twin, its operators: whatever happens, a twin goes only as a last resort."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from twinshore.config.model import DeletedTopicPolicy, RecreatedTopicPolicy, SyncRules
from twinshore.replication.sync.core.decisions import (
    AskTwinRanges,
    DeleteTwin,
    DropTopicState,
    RememberState,
    ReportIncident,
    RevokeApproval,
)
from twinshore.replication.sync.core.lifecycle import (
    MISSED_POLLS_MIN,
    Approval,
    DeletionRules,
    LifecycleState,
    ObservedTopic,
    Presence,
    TopicObservation,
    TwinRange,
    decide_actions,
)

SEEDS = 3_000
STEPS = 120
LOOK_MS = 5_000
DELAY_S = 30.0
TOPIC = "orders"
BOTH_DELETE = SyncRules(
    deleted=DeletedTopicPolicy.DELETE, recreated=RecreatedTopicPolicy.RECREATE, delete_after_s=DELAY_S
)


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
    follow: SyncRules = BOTH_DELETE
    memory: LifecycleState = field(default_factory=LifecycleState)
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
            deleted, recreated = (
                self.chance.choice(list(DeletedTopicPolicy)),
                self.chance.choice(list(RecreatedTopicPolicy)),
            )
            after_s = self.chance.choice([DELAY_S, 2 * DELAY_S])
            self.follow = replace(self.follow, deleted=deleted, recreated=recreated, delete_after_s=after_s)
            if self._policy() == before:
                return
        elif what == "word" and self.source:
            # An operator is shown what the twin holds now.
            self.memory = replace(self.memory, begin=Approval(self.now_ms, self.source, ((0, 10 + self.written),)))
            return
        else:
            return
        self.calm_ms = self.now_ms

    def _policy(self) -> tuple[str, float]:
        """Whichever speaks of the topic as it is, and its delay."""
        return self.follow.recreated if self.source else self.follow.deleted, self.follow.delete_after_s

    def look(self) -> None:
        there = ObservedTopic(Presence.THERE, self.source, 1) if self.source else ObservedTopic(Presence.GONE)
        twin = ObservedTopic(Presence.THERE, self.twin, 1) if self.twin else ObservedTopic(Presence.GONE)
        self.missed = 0 if self.source else self.missed + 1
        seen = TopicObservation(TOPIC, TOPIC, "s1", "t1", there, twin, self.missed)
        against = "paused" if self.paused else "kept" if self.kept else ""
        rules = DeletionRules(self.follow, against)
        spans: list[TwinRange] = []
        if self.memory.state is not None:
            self.memory = replace(self.memory, served_s=(self.now_ms - self.memory.since_ms) / 1000)
        acts = decide_actions(seen, self.memory, rules, None, self.now_ms)
        if acts == [AskTwinRanges(TOPIC)]:
            spans = [TwinRange(0, 0, 10 + self.written, 10, 10)]
            acts = decide_actions(seen, self.memory, rules, spans, self.now_ms)
        for act in acts:
            match act:
                case RememberState(_, None):
                    self.memory = LifecycleState(begin=self.memory.begin)
                case RememberState(_, state, due_ms, source_id):
                    begin = self.memory.begin
                    self.memory = LifecycleState(state, self.now_ms, due_ms, source_id, begin=begin)
                case RevokeApproval():
                    self.memory = replace(self.memory, begin=None)
                case ReportIncident(_, _, sentence):
                    self.told.append(sentence)
                    assert not self.twin or spans, "a row names what was asked"
                case DeleteTwin():
                    self._delete(spans)
                case DropTopicState():
                    self.memory = LifecycleState()

    def _delete(self, spans: list[TwinRange]) -> None:
        word = self.memory.begin
        assert spans, "what it holds was asked at that moment"
        assert not self.paused and not self.kept
        assert self.twin == "t1"
        if word is not None and word.source_id == self.source:
            assert dict(word.ends)[0] >= 10 + self.written, "nobody agreed to what was written since"
        else:
            assert self.written == 0, "the link did not carry it"
            assert self._policy()[0] in (RecreatedTopicPolicy.RECREATE, DeletedTopicPolicy.DELETE)
            assert self.now_ms - self.calm_ms >= DELAY_S * 1000, "its delay begins anew with each thing that happens"
            assert self.source or self.missed >= MISSED_POLLS_MIN
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
