"""The table of Kafka's APIs: keys, names, flexible versions, handwritten versions."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_CONFIGS: Final = 32
SASL_AUTHENTICATE: Final = 36
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65

# Lowest and highest version of requests encoded here, not by kio.
HANDWRITTEN_VERSIONS: Final = {
    PRODUCE: (9, 13),
    FETCH: (13, 13),
    LIST_OFFSETS: (7, 7),
    OFFSET_COMMIT: (8, 8),
    OFFSET_FETCH: (8, 8),
    WRITE_TXN_MARKERS: (1, 1),
    DESCRIBE_TRANSACTIONS: (0, 0),
}

# Size limits of responses. A fetch returns its first batch whole, up to the topic's limit.
RESPONSE_BYTES_MAX: Final = 100 << 20
FETCH_RESPONSE_BYTES_MAX: Final = 1 << 30

NEVER_FLEXIBLE: Final = 1 << 15
# Name, and the first version whose headers carry tags.
_TABLE: Final = {
    0: ("Produce", 9),
    1: ("Fetch", 12),
    2: ("ListOffsets", 6),
    3: ("Metadata", 9),
    8: ("OffsetCommit", 8),
    9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3),
    11: ("JoinGroup", 6),
    12: ("Heartbeat", 4),
    13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4),
    15: ("DescribeGroups", 5),
    16: ("ListGroups", 3),
    17: ("SaslHandshake", NEVER_FLEXIBLE),
    18: ("ApiVersions", 3),
    19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4),
    21: ("DeleteRecords", 2),
    22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4),
    24: ("AddPartitionsToTxn", 3),
    25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3),
    27: ("WriteTxnMarkers", 1),
    28: ("TxnOffsetCommit", 3),
    29: ("DescribeAcls", 2),
    30: ("CreateAcls", 2),
    31: ("DeleteAcls", 2),
    32: ("DescribeConfigs", 4),
    33: ("AlterConfigs", 2),
    34: ("AlterReplicaLogDirs", 2),
    35: ("DescribeLogDirs", 2),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    38: ("CreateDelegationToken", 2),
    39: ("RenewDelegationToken", 2),
    40: ("ExpireDelegationToken", 2),
    41: ("DescribeDelegationToken", 2),
    42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    46: ("ListPartitionReassignments", 0),
    47: ("OffsetDelete", NEVER_FLEXIBLE),
    48: ("DescribeClientQuotas", 1),
    49: ("AlterClientQuotas", 1),
    50: ("DescribeUserScramCredentials", 0),
    51: ("AlterUserScramCredentials", 0),
    52: ("Vote", 0),
    53: ("BeginQuorumEpoch", 1),
    54: ("EndQuorumEpoch", 1),
    55: ("DescribeQuorum", 0),
    56: ("AlterPartition", 2),
    57: ("UpdateFeatures", 0),
    58: ("Envelope", 0),
    59: ("FetchSnapshot", 0),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    62: ("BrokerRegistration", 0),
    63: ("BrokerHeartbeat", 0),
    64: ("UnregisterBroker", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    67: ("AllocateProducerIds", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0),
    70: ("ControllerRegistration", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    73: ("AssignReplicasToDirs", 0),
    74: ("ListConfigResources", 0),
    75: ("DescribeTopicPartitions", 0),
    76: ("ShareGroupHeartbeat", 0),
    77: ("ShareGroupDescribe", 0),
    78: ("ShareFetch", 0),
    79: ("ShareAcknowledge", 0),
    80: ("AddRaftVoter", 0),
    81: ("RemoveRaftVoter", 0),
    82: ("UpdateRaftVoter", 0),
    83: ("InitializeShareGroupState", 0),
    84: ("ReadShareGroupState", 0),
    85: ("WriteShareGroupState", 0),
    86: ("DeleteShareGroupState", 0),
    87: ("ReadShareGroupStateSummary", 0),
    88: ("StreamsGroupHeartbeat", 0),
    89: ("StreamsGroupDescribe", 0),
    90: ("DescribeShareGroupOffsets", 0),
    91: ("AlterShareGroupOffsets", 0),
    92: ("DeleteShareGroupOffsets", 0),
}


def api_name(key: int) -> str:
    """Returns `Metadata` for 3."""
    return _TABLE[key][0] if key in _TABLE else f"Api{key}"


def tags_in_request(key: int, version: int) -> bool:
    """Whether the request header has tags. An API unknown here is new enough."""
    return key not in _TABLE or version >= _TABLE[key][1]


def tags_in_response(key: int, version: int) -> bool:
    """Whether the response header has tags. ApiVersions never has: the client knows no version yet."""
    return key != API_VERSIONS and tags_in_request(key, version)


def response_bytes_max(key: int) -> int:
    return FETCH_RESPONSE_BYTES_MAX if key == FETCH else RESPONSE_BYTES_MAX


class ApiFormat(NamedTuple):
    key: int
    version: int
    tags_in_request: bool
    tags_in_response: bool
    response_bytes_max: int


@cache
def api_format(key: int, version: int) -> ApiFormat:
    return ApiFormat(
        key, version, tags_in_request(key, version), tags_in_response(key, version), response_bytes_max(key)
    )
