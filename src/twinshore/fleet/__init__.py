"""What exists: clusters, their security, links between them, topic partitions, and the errors every room raises.

Settings enter as TOML text (`settings`), leave as frozen values. Nothing here knows of sockets, Spark, SQL or a clock.
"""

from twinshore.fleet.control import Control
from twinshore.fleet.errors import (
    ConfigError,
    KafkaError,
    NotYetError,
    RefusedError,
    StoreError,
    TooLargeError,
    TwinshoreError,
    WireError,
)
from twinshore.fleet.nouns import (
    HEARTBEATS,
    TWINS_TOPIC,
    Cluster,
    Deleted,
    Follow,
    GroupRules,
    Link,
    MappedFrom,
    Mode,
    NamedPartition,
    Naming,
    Recreated,
    SaslMechanism,
    Secret,
    Security,
    SourceOffset,
    TargetOffset,
    is_heartbeats,
)

__all__ = [
    "HEARTBEATS",
    "TWINS_TOPIC",
    "Cluster",
    "ConfigError",
    "Control",
    "Deleted",
    "Follow",
    "GroupRules",
    "KafkaError",
    "Link",
    "MappedFrom",
    "Mode",
    "NamedPartition",
    "Naming",
    "NotYetError",
    "Recreated",
    "RefusedError",
    "SaslMechanism",
    "Secret",
    "Security",
    "SourceOffset",
    "StoreError",
    "TargetOffset",
    "TooLargeError",
    "TwinshoreError",
    "WireError",
    "is_heartbeats",
]
