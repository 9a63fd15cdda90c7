"""What exists: clusters, their security, links between them, topic partitions, and the errors every room raises.

Settings enter as TOML text (`settings`), leave as frozen values. Nothing here knows of sockets, Spark, SQL or a clock.
"""

from twinshore.fleet.errors import (
    ConfigError,
    KafkaError,
    NotYetError,
    RefusedError,
    StoreError,
    TwinshoreError,
    WireError,
)
from twinshore.fleet.nouns import (
    Cluster,
    Deleted,
    Follow,
    Link,
    NamedPartition,
    Recreated,
    SaslMechanism,
    Secret,
    Security,
    SourceOffset,
    TargetOffset,
)

__all__ = [
    "Cluster",
    "ConfigError",
    "Deleted",
    "Follow",
    "KafkaError",
    "Link",
    "NamedPartition",
    "NotYetError",
    "Recreated",
    "RefusedError",
    "SaslMechanism",
    "Secret",
    "Security",
    "SourceOffset",
    "StoreError",
    "TargetOffset",
    "TwinshoreError",
    "WireError",
]
