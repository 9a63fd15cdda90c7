"""One cluster over the network.

Nouns: transport (a byte stream to one broker), connection (a transport after its handshake, for control messages),
cluster view (who leads what; offsets; producer states) and admin (topics and their settings). A `fleet.Cluster` enters,
answers leave as frozen values; whatever a broker or the network refuses leaves as a KafkaError with place, code and
remedy. It does not know of links, twins or any other cluster.
"""

from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.connection import Connection
from twinshore.kafka.errors import Code, ErrorKind, describe, kafka_error
from twinshore.kafka.opening import open_connection
from twinshore.kafka.questions import OffsetKind
from twinshore.kafka.transport import Transport, dial

__all__ = [
    "Code",
    "Connection",
    "ErrorKind",
    "KafkaCluster",
    "OffsetKind",
    "Transport",
    "describe",
    "dial",
    "kafka_error",
    "open_connection",
]
