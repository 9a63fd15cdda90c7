"""Habits of any client: connections, questions where topics are, and how old it is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from twinshore.advisor.conduct.rule import Case, HabitRule
from twinshore.advisor.conduct.uses import SECONDS, Client, lasts, part_of, work
from twinshore.advisor.rule import Limit, Weight
from twinshore.store.traffic_values import FlowKind

Limits = Mapping[str, float]
Found = Iterator[Case]
# What clients call themselves, the first version that is not old, and why.
OLD: Mapping[str, tuple[tuple[int, int], str]] = {
    "apache-kafka-java": ((3, 0), "before 3.0 producers have acks=1 and are not idempotent unless they are told to be"),
    "librdkafka": (
        (2, 0),
        "releases before 2.0 are from before 2023, and what was mended since is not in them",
    ),
}


# Names that clients have where nobody gives them one. Java counts those of a process, so that each number is one client
# there; any number of processes share such a name.
BY_DEFAULT = re.compile(r"(producer|consumer|adminclient)(-.*)?-\d+|rdkafka|sarama|kafka-python-.*|")


def _many_connections(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.CLIENT):
        count = use.flow.connected_max
        if count > limits["connections"] and not BY_DEFAULT.fullmatch(client.name):
            requests = part_of(use.flow.requests, count)
            yield Case(
                key,
                f"{count:,} connections at once, {requests:,.0f} requests by each",
                "memory and a place in the event loop of proxy and broker for each; brokers and proxies have bounds",
                "where these are of one process: one producer and one consumer serve all its threads, with a connection"
                " to each broker that leads something of theirs. Processes that share the id need theirs",
                {"connected_max": count, "requests_per_connection": requests},
            )


def _reconnects(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.CLIENT):
        flow = use.flow
        opened_s, each = use.per_s(flow.connections), part_of(flow.requests, flow.connections)
        if not lasts(use, limits["seconds"]) or opened_s <= limits["connections_s"]:
            continue
        # Those that are there at once, by how many come in a second: so long does one live, at most.
        lives_s = client.connected / opened_s
        if lives_s < limits["lives_s"] and each < limits["requests"]:
            yield Case(
                key,
                f"{opened_s:,.1f} new connections a second, with {each:,.0f} requests each; one lasts for"
                f" {lives_s:,.1f} s at most",
                "a handshake, a login and the questions where everything is, for each; a record waits for all of them",
                f"no new connections while nothing fails, in place of {opened_s * 3_600:,.0f} an hour",
                {"connections_s": opened_s, "requests_per_connection": each, "lives_s": lives_s},
            )


def _metadata_storm(client: Client, limits: Limits) -> Found:
    ours = [(key, use) for key, use in client.of(FlowKind.METADATA) if not key.topic]
    for key, use in ours:
        asked_s, each_s = use.per_s(use.flow.requests), client.each_s(use, use.flow.requests)
        if lasts(use, limits["seconds"]) and asked_s > limits["requests_s"] and each_s > limits["each_s"]:
            yield Case(
                key,
                f"{asked_s:,.1f} questions a second where topics are",
                f"{work(asked_s)}, and more where the cluster has many partitions: each answer names them",
                "one question in five minutes from each client, as by default",
                {"requests_s": asked_s},
            )


def _unknown_topics(client: Client, limits: Limits) -> Found:
    for key, use in client.of(FlowKind.METADATA):
        asked_s = use.per_s(use.flow.errors)
        if key.topic and use.flow.errors > limits["requests"] and asked_s > limits["requests_s"]:
            yield Case(
                key,
                f"asked for {use.flow.errors:,} times, {asked_s:,.1f} times a second, and nobody has it",
                work(asked_s),
                "none of these questions",
                {"requests": use.flow.errors, "requests_s": asked_s},
            )


def _old_client(client: Client, _limits: Limits) -> Found:
    for key, use in client.of(FlowKind.CLIENT):
        name, _, version = use.flow.software.partition(" ")
        known, number = OLD.get(name), re.match(r"(\d+)\.(\d+)", version)
        if known is None or number is None:
            continue
        (first, why), release = known, (int(number[1]), int(number[2]))
        if release < first:
            yield Case(
                key,
                f"it says that it is {name} {version}",
                why,
                f"{name} {first[0]}.{first[1]} or newer has what was mended since",
                {"major": release[0], "minor": release[1]},
            )


ASKING_RULES = (
    HabitRule(
        "many-connections",
        Weight.NOTE,
        "a client id has very many connections",
        "memory of brokers and proxies, and their bounds",
        ("one producer and one consumer for each process, shared by its threads",),
        _many_connections,
        (Limit("connections", 100, "connections of one client id at one proxy that are fine"),),
    ),
    HabitRule(
        "reconnects",
        Weight.WARNING,
        "a client connects anew all the time",
        "handshakes and logins, and the time of each record that waits for them",
        ("one producer for the life of the process, not one for each record", "reconnect.backoff.max.ms=1000"),
        _reconnects,
        (
            Limit("connections_s", 0.5, "new connections a second that are fine"),
            Limit("lives_s", 60, "seconds that a connection should last: clients end idle ones after some minutes"),
            Limit("requests", 50, "requests that a connection should be used for"),
            SECONDS,
        ),
    ),
    HabitRule(
        "metadata-storm",
        Weight.WARNING,
        "a client asks all the time where topics are",
        "the most expensive question: its answer grows with partitions and brokers",
        ("metadata.max.age.ms=300000 (librdkafka: topic.metadata.refresh.interval.ms=300000)",),
        _metadata_storm,
        (
            Limit("requests_s", 2, "questions a second that are fine"),
            Limit("each_s", 0.1, "questions a second by each connection that are fine"),
            SECONDS,
        ),
    ),
    HabitRule(
        "unknown-topics",
        Weight.WARNING,
        "a client asks over and over for a topic that is not there",
        "questions that are all for nothing, of an application that does not work",
        ("the topic's right name; or make the topic",),
        _unknown_topics,
        (
            Limit("requests", 20, "questions for one topic that are fine"),
            Limit("requests_s", 0.2, "of them a second that are fine"),
        ),
    ),
    HabitRule(
        "old-client",
        Weight.NOTE,
        "a client is old",
        "defaults and faults that newer ones have mended",
        ("a newer library: brokers since Kafka 2.1 and this proxy take it",),
        _old_client,
    ),
)
