"""The keys of admin requests, and the versions that are handled: below those that name topics by ids. Pure."""

from __future__ import annotations

from typing import Final

from twinshore.wire.apis import DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS

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

# From CreateTopics v7 and DeleteTopics v6 on, topics are named by ids. ElectLeaders v0 has no error for all partitions.
# DescribeUserScramCredentials is not offered: clients of librdkafka crash at the error that would refuse it.
ADMIN: Final[dict[int, tuple[int, int]]] = {
    CREATE_TOPICS: (2, 6),
    DELETE_TOPICS: (1, 5),
    DELETE_RECORDS: (0, 2),
    DESCRIBE_ACLS: (1, 3),
    CREATE_ACLS: (1, 3),
    DELETE_ACLS: (1, 3),
    DESCRIBE_CONFIGS: (1, 4),
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
    DESCRIBE_PRODUCERS: (0, 0),
    DESCRIBE_TRANSACTIONS: (0, 0),
    LIST_TRANSACTIONS: (0, 2),
}
