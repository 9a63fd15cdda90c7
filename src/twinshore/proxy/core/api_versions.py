"""APIs and versions for clients: what all clusters support and the proxy handles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from twinshore.kafka.protocol import apis
from twinshore.kafka.protocol.handshake import (
    API_VERSIONS_VERSION_MAX,
    UNSUPPORTED_VERSION,
    ApiVersionRange,
    ApiVersionsResponse,
    encode_api_versions,
    read_api_versions_request,
)
from twinshore.kafka.protocol.requests import Request
from twinshore.proxy.core.model import CONSUMER_GROUP_DESCRIBE, ApiVersionRanges
from twinshore.proxy.core.transaction_requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    TXN_OFFSET_COMMIT,
)

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
ELECT_LEADERS: Final = 43
INCREMENTAL_ALTER_CONFIGS: Final = 44
ALTER_PARTITION_REASSIGNMENTS: Final = 45
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49
ALTER_SCRAM_USERS: Final = 51
LIST_TRANSACTIONS: Final = 66

FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
DESCRIBE_CLUSTER: Final = 60
CONSUMER_GROUP_HEARTBEAT: Final = 68

# The lowest and highest handled versions. Later ones name topics by ids, which differ between clusters, or begin
# transactions implicitly (Produce v12), also while a switch waits for open ones. Metadata has ids from v10 on.
HANDLED_API_VERSIONS: Final[ApiVersionRanges] = {
    apis.PRODUCE: (3, 11),
    apis.FETCH: (4, 12),
    apis.LIST_OFFSETS: (1, 10),
    apis.METADATA: (0, 12),
    apis.OFFSET_COMMIT: (2, 9),
    apis.OFFSET_FETCH: (1, 9),
    FIND_COORDINATOR: (0, 5),
    JOIN_GROUP: (0, 9),
    HEARTBEAT: (0, 4),
    LEAVE_GROUP: (0, 5),
    SYNC_GROUP: (0, 5),
    DESCRIBE_GROUPS: (0, 6),
    LIST_GROUPS: (0, 5),
    apis.API_VERSIONS: (0, API_VERSIONS_VERSION_MAX),
    apis.INIT_PRODUCER_ID: (0, 5),
    ADD_PARTITIONS_TO_TXN: (0, 3),
    ADD_OFFSETS_TO_TXN: (0, 4),
    END_TXN: (0, 4),
    TXN_OFFSET_COMMIT: (0, 4),
    apis.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    DESCRIBE_CLUSTER: (0, 1),
    CONSUMER_GROUP_HEARTBEAT: (0, 1),
    CONSUMER_GROUP_DESCRIBE: (0, 1),
    # From CreateTopics v7 and DeleteTopics v6 on, topics are named by ids. ElectLeaders v0 has no error for all
    # partitions. DescribeUserScramCredentials is not offered: clients of librdkafka crash at the error that would
    # refuse it.
    CREATE_TOPICS: (2, 6),
    DELETE_TOPICS: (1, 5),
    DELETE_RECORDS: (0, 2),
    DESCRIBE_ACLS: (1, 3),
    CREATE_ACLS: (1, 3),
    DELETE_ACLS: (1, 3),
    apis.DESCRIBE_CONFIGS: (1, 4),
    ALTER_CONFIGS: (0, 2),
    DESCRIBE_LOG_DIRS: (1, 5),
    CREATE_PARTITIONS: (0, 3),
    DELETE_GROUPS: (0, 2),
    ELECT_LEADERS: (1, 2),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    LIST_PARTITION_REASSIGNMENTS: (0, 0),
    OFFSET_DELETE: (0, 0),
    DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ALTER_CLIENT_QUOTAS: (0, 1),
    ALTER_SCRAM_USERS: (0, 0),
    apis.DESCRIBE_PRODUCERS: (0, 0),
    apis.DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
}
# Answered here, independent of clusters. If a cluster lacks the newer group protocol, the members' own request is
# refused: if not offered, librdkafka looks for another coordinator for ever, and tells its application nothing.
_OWN: Final = (apis.API_VERSIONS, CONSUMER_GROUP_HEARTBEAT)
_OF_NEWER_GROUPS: Final = (CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)
# Topic ids are told only if groups of the newer protocol need them.
_METADATA_WITHOUT_IDS: Final = 9
_FEATURE: Final = "group.version"
# librdkafka clients compress only if Produce v0 is offered, though they never send it.
_OFFERED_FROM: Final = {apis.PRODUCE: 0}


def intersect_versions(offers: Iterable[ApiVersionRanges]) -> dict[int, tuple[int, int]]:
    """Returns the versions that all support, of the APIs that all have."""
    ranges = list(offers)
    keys = set.intersection(*map(set, ranges)) if ranges else set[int]()
    found = {key: (max(one[key][0] for one in ranges), min(one[key][1] for one in ranges)) for key in keys}
    return {key: (low, high) for key, (low, high) in found.items() if low <= high}


def supports_consumer_protocol(answer: ApiVersionsResponse) -> bool:
    """Whether the newer group protocol is enabled on this cluster. A broker may list the APIs all the same."""
    return any(one.name == _FEATURE and one.highest > 0 for one in answer.finalized)


def without_consumer_protocol(offers: ApiVersionRanges) -> ApiVersionRanges:
    return {key: some for key, some in offers.items() if key not in _OF_NEWER_GROUPS}


def compute_offered_versions(clusters: Iterable[ApiVersionRanges]) -> ApiVersionRanges:
    found = intersect_versions([HANDLED_API_VERSIONS, *clusters])
    if not all(key in found for key in _OF_NEWER_GROUPS):
        found = dict(without_consumer_protocol(found))
        if apis.METADATA in found:
            low, high = found[apis.METADATA]
            found[apis.METADATA] = low, min(high, _METADATA_WITHOUT_IDS)
    own = {key: HANDLED_API_VERSIONS[key] for key in _OWN}
    return own | found | {apis.API_VERSIONS: own[apis.API_VERSIONS]}


def build_versions_response(request: Request, offers: ApiVersionRanges) -> bytes:
    """Answer ApiVersions. A request of an unknown version gets UNSUPPORTED_VERSION in version 0."""
    if request.version > API_VERSIONS_VERSION_MAX:
        own = ApiVersionRange(apis.API_VERSIONS, *HANDLED_API_VERSIONS[apis.API_VERSIONS])
        return encode_api_versions(0, ApiVersionsResponse(UNSUPPORTED_VERSION, [own]))
    read_api_versions_request(request.view, request.position, request.version)
    told = [ApiVersionRange(key, _OFFERED_FROM.get(key, low), high) for key, (low, high) in sorted(offers.items())]
    return encode_api_versions(request.version, ApiVersionsResponse(0, told))
