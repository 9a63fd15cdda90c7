"""Habits of producers: how they send, and what they wait for. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twinshore.advisor.conduct.rule import Case, HabitRule
from twinshore.advisor.conduct.uses import DAY_S, LINGER_MS, SECONDS, Client, Use, lasts, part_of, size, work
from twinshore.advisor.rule import Limit, Weight
from twinshore.store.traffic_values import Flow, FlowKey, FlowKind

Limits = Mapping[str, float]
Found = Iterator[Case]


def _produced(client: Client, limits: Limits) -> Iterator[tuple[FlowKey, Use, Flow]]:
    for key, use in client.of(FlowKind.PRODUCE):
        if lasts(use, limits["seconds"]):
            yield key, use, use.flow


def _no_compression(client: Client, limits: Limits) -> Found:
    for key, use, flow in _produced(client, limits):
        plain_s, part = use.per_s(flow.plain_bytes), part_of(flow.plain_bytes, flow.bytes)
        to_part = part_of(flow.tried_lz4, flow.tried)
        if plain_s > limits["bytes_s"] and part > limits["part"] and to_part < limits["lz4_part"]:
            a_day = size(plain_s * DAY_S)
            saved = (
                f"lz4 took samples of {size(flow.tried)} to {to_part:.0%}: {size(plain_s * to_part)} a second in place"
                f" of {size(plain_s)}"
                if flow.tried
                else "how much they shrink one producer tries: no sample was taken"
            )
            yield Case(
                key,
                f"{size(plain_s)} a second are not compressed, {part:.0%} of what it sends",
                f"{a_day} a day on the way to the leader, as much to each further replica and to each group that reads"
                " it, and on each replica's disk",
                f"{saved}; in larger batches it does more",
                {"plain_bytes_s": plain_s, "part": part, "bytes_s": use.per_s(flow.bytes), "lz4_part": to_part},
            )


def _singles(flow: Flow) -> float:
    return part_of(flow.singles, flow.batches)


def _single_records(client: Client, limits: Limits) -> Found:
    for key, use, flow in _produced(client, limits):
        # Of many that share an id each may send a record now and then: there is nothing to wait for.
        often = client.each_s(use, flow.batches) > limits["batches_s"]
        if often and _singles(flow) > limits["part"]:
            yield _small(client, key, use, f"{_singles(flow):.0%} of its batches hold one record")


def _tiny_batches(client: Client, limits: Limits) -> Found:
    for key, use, flow in _produced(client, limits):
        mean = part_of(flow.bytes, flow.batches)
        often = client.each_s(use, flow.requests) > limits["each_s"]
        if use.per_s(flow.requests) <= limits["requests_s"] or not often:
            continue
        if mean < limits["bytes"] and _singles(flow) <= 0.9:
            yield _small(client, key, use, f"a batch has {size(mean)} on average")


def _small(client: Client, key: FlowKey, use: Use, what: str) -> Case:
    flow = use.flow
    batches_s, requests_s = use.per_s(flow.batches), use.per_s(flow.requests)
    fewer = min(requests_s, client.connected * 1_000 / LINGER_MS)
    return Case(
        key,
        f"{what}: {flow.records:,} records in {flow.batches:,} batches, {requests_s:,.0f} requests a second",
        f"{work(requests_s)}; and each batch has a header, an index entry and a check of its own",
        f"with linger.ms={LINGER_MS} a connection sends {1_000 / LINGER_MS:.0f} requests a second at most: with"
        f" {client.connected:,.0f} of them {fewer:,.0f} in place of {requests_s:,.0f}. An application that waits for"
        " each record before it sends the next one gains nothing: let it look at what became of records in callbacks",
        {
            "requests_s": requests_s,
            "batches_s": batches_s,
            "records_per_batch": part_of(flow.records, flow.batches),
            "bytes_per_batch": part_of(flow.bytes, flow.batches),
            "requests_s_mended": fewer,
        },
    )


def _weak_acks(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.PRODUCE):
        minimum = client.min_insync.get((key.cluster, key.topic), 0)
        weak = use.flow.acks_none + use.flow.acks_leader
        if minimum >= limits["min_insync"] and weak:
            yield Case(
                key,
                f"min.insync.replicas={minimum}, and {weak:,} of {use.flow.requests:,} requests asked for less:"
                f" {use.flow.acks_leader:,} with acks=1, {use.flow.acks_none:,} with acks=0",
                f"{size(use.flow.bytes)} were sent; what only a leader has when it dies is lost, though it was"
                " acknowledged",
                f"each record is on {minimum} replicas before it is acknowledged; a request waits for the slowest of"
                " them",
                {"min_insync": minimum, "requests_weak": weak, "requests": use.flow.requests},
            )


def _unheard(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.PRODUCE):
        minimum = client.min_insync.get((key.cluster, key.topic), 0)
        none = use.flow.acks_none
        if none > limits["requests"] and minimum < 2:
            yield Case(
                key,
                f"{none:,} requests with acks=0",
                "whatever a broker refuses is lost, and neither it nor the application hears of it",
                "with acks=1 each request is answered: the same records, and a refusal is told and tried again",
                {"requests_unheard": none, "requests": use.flow.requests},
            )


def _not_idempotent(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.PRODUCE):
        flow = use.flow
        strong = flow.requests - flow.acks_none - flow.acks_leader
        part = part_of(flow.unnumbered, flow.batches)
        if strong * 2 > flow.requests and flow.unnumbered > limits["batches"] and part > limits["part"]:
            yield Case(
                key,
                f"{flow.unnumbered:,} of {flow.batches:,} batches bear no producer id",
                "a batch whose acknowledgement is lost is written twice, and with several requests under way a retry"
                f" comes behind its successors; {flow.errors:,} were refused meanwhile",
                "the broker takes each batch once and in order; a request grows by nothing",
                {"batches_unnumbered": flow.unnumbered, "batches": flow.batches, "errors": flow.errors},
            )


PRODUCER_RULES = (
    HabitRule(
        "weak-acks",
        Weight.GRAVE,
        "a producer asks for less than its topic promises",
        "records that were acknowledged, when a leader dies",
        ("acks=all",),
        _weak_acks,
        (Limit("min_insync", 2, "min.insync.replicas from which on a topic asks for more than acks=1"),),
    ),
    HabitRule(
        "no-compression",
        Weight.WARNING,
        "a producer does not compress",
        "network and disks: of each replica, and of each reader",
        ("compression.type=lz4",),
        _no_compression,
        (
            Limit("bytes_s", 50_000, "bytes a second that are fine"),
            Limit("part", 0.5, "which part of all bytes is fine"),
            Limit("lz4_part", 0.8, "the part to which lz4 takes samples, from which on it saves too little"),
            SECONDS,
        ),
    ),
    HabitRule(
        "single-records",
        Weight.WARNING,
        "a producer sends each record by itself",
        "a request for each record: processor time of brokers, and of clients that read such batches",
        (f"linger.ms={LINGER_MS}", "batch.size=131072"),
        _single_records,
        (
            Limit("batches_s", 50, "batches a second by each connection that are fine, as with linger.ms=20"),
            Limit("part", 0.9, "which part of all batches may hold one record"),
            SECONDS,
        ),
    ),
    HabitRule(
        "tiny-batches",
        Weight.NOTE,
        "a producer sends many small batches",
        "more requests, headers and checks than its records need",
        (f"linger.ms={LINGER_MS}", "batch.size=131072"),
        _tiny_batches,
        (
            Limit("requests_s", 100, "requests a second that are fine"),
            Limit("each_s", 50, "requests a second by each connection that are fine"),
            Limit("bytes", 1_000, "bytes that a batch should have on average"),
            SECONDS,
        ),
    ),
    HabitRule(
        "no-idempotence",
        Weight.WARNING,
        "a producer is not idempotent",
        "records written twice or out of order, behind a retry",
        ("enable.idempotence=true", "acks=all"),
        _not_idempotent,
        (
            Limit("batches", 100, "batches without a producer id that are fine"),
            Limit("part", 0.5, "which part of all batches is fine"),
        ),
    ),
    HabitRule(
        "acks-none",
        Weight.NOTE,
        "a producer does not wait for any answer",
        "records that a broker refused, without a word",
        ("acks=1",),
        _unheard,
        (Limit("requests", 10, "requests that are fine"),),
    ),
)
