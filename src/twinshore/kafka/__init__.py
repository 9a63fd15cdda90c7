"""One cluster over the network.

Nouns: transport (a byte stream to one broker), connection (a transport after its handshake, for control messages),
cluster view (who leads what; offsets; producer states) and admin (topics and their settings). A `fleet.Cluster` enters,
answers leave as frozen values; whatever a broker or the network refuses leaves as a KafkaError with place, code and
remedy. It does not know of links, twins or any other cluster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Whoever wants no more than a clock or an error is not to wait until the schemas of all requests are loaded.
_HOME = {
    "Code": "errors",
    "Connection": "connection",
    "ErrorKind": "errors",
    "KafkaCluster": "cluster",
    "OffsetKind": "questions",
    "Transport": "transport",
    "describe": "errors",
    "dial": "transport",
    "kafka_error": "errors",
    "open_connection": "opening",
}


def __getattr__(name: str) -> Any:
    """The name's own module is loaded when the name is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found
