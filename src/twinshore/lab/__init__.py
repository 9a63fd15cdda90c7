"""Real servers on this machine for the demo, the tests and the benches: Kafka, databases, a network that fails.

Enters: what a cluster shall be (version, brokers, security, settings). Leaves: a running LabCluster and the fleet's
Cluster to reach it by. It knows nothing of mirrors; everything it starts, it ends, and it ends nothing else.
"""

from twinshore.lab.access import LabSecurity
from twinshore.lab.cluster import LabCluster
from twinshore.lab.compare import Comparison, Difference, compare_topic
from twinshore.lab.databases import MariaDbServer, PostgresServer
from twinshore.lab.errors import LabError
from twinshore.lab.jars import (
    KAFKA_3,
    KAFKA_NEWEST,
    KAFKA_OLDEST,
    KAFKA_OLDEST_SOURCE,
    KAFKA_OLDEST_TARGET,
    connect_mirror_classpath,
    java,
    kafka_classpath,
    tools_classpath,
)
from twinshore.lab.produce import Workload
from twinshore.lab.proxy import FaultProxy

__all__ = [
    "KAFKA_3",
    "KAFKA_NEWEST",
    "KAFKA_OLDEST",
    "KAFKA_OLDEST_SOURCE",
    "KAFKA_OLDEST_TARGET",
    "Comparison",
    "Difference",
    "FaultProxy",
    "LabCluster",
    "LabError",
    "LabSecurity",
    "MariaDbServer",
    "PostgresServer",
    "Workload",
    "compare_topic",
    "connect_mirror_classpath",
    "java",
    "kafka_classpath",
    "tools_classpath",
]
