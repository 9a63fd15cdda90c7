"""What is refused by name, with a sentence where the answer has room for one. Pure.

All that is refused here would have to be done on several clusters alike, or is what only one of them can know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from twinshore.kafka.errors import Code
from twinshore.proxy.core.admin.versions import (
    ALTER_CLIENT_QUOTAS,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_SCRAM_USERS,
    CREATE_ACLS,
    DELETE_ACLS,
    ELECT_LEADERS,
)
from twinshore.proxy.core.messages import answer_kind, error, filled, part_of, read_asked, written
from twinshore.proxy.core.moves import Parts
from twinshore.wire.serving.requests import Request

RIGHTS: Final = "ACLs are changed at a cluster's own address: this proxy has several, and on a mirror's target"
RIGHTS_SAY: Final = f"{RIGHTS} a right to write would spoil twins"
LEADERS_SAY: Final = "leaders are elected at the cluster's own address, not by this proxy"
MOVES_SAY: Final = "replicas are moved at the cluster's own address, not by this proxy"
QUOTAS_SAY: Final = "quotas are set at each cluster's own address: this proxy has several"
USERS_SAY: Final = "SCRAM users are kept at each cluster's own address, not by this proxy"

_REFUSED: Final = error(Code.POLICY_VIOLATION)


def refused(request: Request) -> Parts:
    """The answer that refuses it."""
    kind = answer_kind(request.key, request.version)
    return written(_ANSWERS[request.key](kind, read_asked(request)))


def _each(kind: Any, told: str, named: list[dict[str, Any]], says: str, **whole: Any) -> Any:
    """The error at each part of the request, in its order."""
    part = part_of(kind, told)
    parts = tuple(filled(part, error_code=_REFUSED, error_message=says, **names) for names in named)
    return filled(kind, **{told: parts}, **whole)


def _create_acls(kind: Any, asked: Any) -> Any:
    return _each(kind, "results", [{} for _ in asked.creations], RIGHTS_SAY)


def _delete_acls(kind: Any, asked: Any) -> Any:
    return _each(kind, "filter_results", [{} for _ in asked.filters], RIGHTS_SAY)


def _alter_quotas(kind: Any, asked: Any) -> Any:
    entity = part_of(kind, "entries", "entity")
    named = [
        {
            "entity": tuple(
                filled(entity, entity_type=two.entity_type, entity_name=two.entity_name) for two in one.entity
            )
        }
        for one in asked.entries
    ]
    return _each(kind, "entries", named, QUOTAS_SAY)


def _alter_users(kind: Any, asked: Any) -> Any:
    users = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return _each(kind, "results", [{"user": user} for user in users], USERS_SAY)


def _elect(kind: Any, asked: Any) -> Any:
    """Of all partitions where none is named: then the answer has an error alone, and no sentence."""
    if asked.topic_partitions is None:
        return filled(kind, error_code=_REFUSED)
    topic, part = (
        part_of(kind, "replica_election_results"),
        part_of(kind, "replica_election_results", "partition_result"),
    )
    results = []
    for one in asked.topic_partitions:
        parts = (filled(part, partition_id=n, error_code=_REFUSED, error_message=LEADERS_SAY) for n in one.partitions)
        results.append(filled(topic, topic=one.topic, partition_result=tuple(parts)))
    return filled(kind, replica_election_results=tuple(results))


def _move_replicas(kind: Any, asked: Any) -> Any:
    topic, part = part_of(kind, "responses"), part_of(kind, "responses", "partitions")
    responses = []
    for one in asked.topics:
        numbers = [two.partition_index for two in one.partitions]
        parts = (filled(part, partition_index=n, error_code=_REFUSED, error_message=MOVES_SAY) for n in numbers)
        responses.append(filled(topic, name=one.name, partitions=tuple(parts)))
    return filled(kind, error_code=_REFUSED, error_message=MOVES_SAY, responses=tuple(responses))


_ANSWERS: Final[Mapping[int, Callable[[Any, Any], Any]]] = {
    CREATE_ACLS: _create_acls,
    DELETE_ACLS: _delete_acls,
    ELECT_LEADERS: _elect,
    ALTER_PARTITION_REASSIGNMENTS: _move_replicas,
    ALTER_CLIENT_QUOTAS: _alter_quotas,
    ALTER_SCRAM_USERS: _alter_users,
}
REFUSED: Final = frozenset(_ANSWERS)
