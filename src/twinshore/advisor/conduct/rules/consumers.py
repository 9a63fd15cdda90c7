"""Habits of consumers: how they ask for records, and how they commit. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twinshore.advisor.conduct.rule import Case, HabitRule
from twinshore.advisor.conduct.uses import FETCH_WAIT_MS, SECONDS, Client, lasts, part_of, size, work
from twinshore.advisor.rule import Limit, Weight
from twinshore.store.traffic_values import FlowKey, FlowKind

Limits = Mapping[str, float]
Found = Iterator[Case]


def _busy_polling(client: Client, limits: Limits) -> Found:
    """What several consumers of one id ask together is no habit: so it goes by how long each answer may wait."""
    for key, use in client.of(FlowKind.FETCH):
        flow = use.flow
        empty_s, part = use.per_s(flow.empty), part_of(flow.empty, flow.requests)
        wait_ms = part_of(flow.wait_ms, flow.requests)
        if not lasts(use, limits["seconds"]) or empty_s <= limits["empty_s"]:
            continue
        if part > limits["part"] and wait_ms < limits["wait_ms"]:
            fewer = empty_s * wait_ms / FETCH_WAIT_MS
            yield Case(
                key,
                f"{empty_s:,.0f} answers a second are empty, {part:.0%} of all: an answer may wait for"
                f" {wait_ms:,.0f} ms for {part_of(flow.min_bytes, flow.requests):,.0f} bytes",
                work(empty_s),
                f"about {max(fewer, 1):,.0f} empty answers a second; records that come are answered as soon as before",
                {"empty_s": empty_s, "part": part, "wait_ms": wait_ms, "empty_s_mended": fewer},
            )


def _small_fetches(client: Client, limits: Limits) -> Found:
    whole = client.whole(FlowKind.FETCH)
    flow = whole.flow
    full = flow.requests - flow.empty
    full_s, mean = whole.per_s(full), part_of(flow.bytes, full)
    # Who asks no more often than it would when it waited gains nothing by waiting.
    often = client.each_s(whole, full) > 1_000 / FETCH_WAIT_MS
    if lasts(whole, limits["seconds"]) and full_s > limits["requests_s"] and mean < limits["bytes"] and often:
        yield Case(
            FlowKey(client.name, "", "", FlowKind.FETCH),
            f"{full_s:,.0f} answers a second with {size(mean)} each",
            work(full_s),
            f"answers of {size(limits['bytes'])} and more, {part_of(mean, limits['bytes']):.0%} as many; a record waits"
            f" for {FETCH_WAIT_MS} ms at most",
            {"requests_s": full_s, "bytes_per_answer": mean},
        )


def _commit_storm(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.COMMIT):
        flow = use.flow
        commits_s, each = use.per_s(flow.requests), part_of(flow.records, flow.requests)
        if not lasts(use, limits["seconds"]) or commits_s <= limits["commits_s"]:
            continue
        # Members that share an id and commit by the clock come to as many, and most of theirs are for nothing new.
        often = client.each_s(use, flow.requests) > limits["each_s"]
        if often and limits["moved"] <= each < limits["records"]:
            yield Case(
                key,
                f"{commits_s:,.0f} commits a second, each {each:,.1f} records behind the one before",
                f"{work(commits_s)}; each is a record in __consumer_offsets, on all its replicas",
                f"one commit for each poll in place of {commits_s:,.0f} a second; after a crash at most the records of"
                " one poll are read again",
                {"commits_s": commits_s, "records_per_commit": each},
            )


CONSUMER_RULES = (
    HabitRule(
        "busy-polling",
        Weight.WARNING,
        "a consumer asks again and again where there is nothing",
        "requests that bring nothing: processor time of brokers and of the consumer",
        (f"fetch.max.wait.ms={FETCH_WAIT_MS} (librdkafka: fetch.wait.max.ms={FETCH_WAIT_MS})", "fetch.min.bytes=1"),
        _busy_polling,
        (
            Limit("empty_s", 10, "empty answers a second that are fine"),
            Limit("part", 0.5, "which part of all answers may be empty"),
            Limit("wait_ms", 100, "milliseconds for which an answer should be allowed to wait"),
            SECONDS,
        ),
    ),
    HabitRule(
        "small-fetches",
        Weight.NOTE,
        "a consumer is given a few records at a time",
        "more requests than its records need",
        ("fetch.min.bytes=65536", f"fetch.max.wait.ms={FETCH_WAIT_MS} (librdkafka: fetch.wait.max.ms={FETCH_WAIT_MS})"),
        _small_fetches,
        (
            Limit("requests_s", 100, "answers with records a second that are fine"),
            Limit("bytes", 10_000, "bytes that an answer should have on average"),
            SECONDS,
        ),
    ),
    HabitRule(
        "commit-storm",
        Weight.WARNING,
        "a consumer commits after each record",
        "a request and a record in __consumer_offsets for each record that is read",
        ("one commit for all that a poll gave, once it was handled",),
        _commit_storm,
        (
            Limit("commits_s", 5, "commits a second that are fine"),
            Limit("each_s", 1, "commits a second by each connection that are fine"),
            Limit("records", 2, "records that a commit should be for on average"),
            Limit("moved", 0.5, "records on average below which commits are those of a clock where nothing comes"),
            SECONDS,
        ),
    ),
)
