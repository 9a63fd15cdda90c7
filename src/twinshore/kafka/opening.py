"""A new control connection: dialled, handshaken, authenticated."""

from __future__ import annotations

import time

from twinshore.fleet import Security
from twinshore.kafka.connection import TIMEOUT_S, Connection
from twinshore.kafka.sasl import authenticate
from twinshore.kafka.transport import dial


def open_connection(
    address: tuple[str, int],
    security: Security,
    *,
    client_id: str = "twinshore",
    timeout_s: float = TIMEOUT_S,
    cluster: str = "",
) -> Connection:
    """Dials, learns API versions, authenticates. Errors name the address, and the cluster where it is given."""
    started = time.monotonic()
    transport = dial(address, security, connect_timeout_s=timeout_s, cluster=cluster)
    connection = Connection(transport, client_id=client_id, timeout_s=timeout_s)
    try:
        connection.handshake()
        if security.sasl:
            connection.expires_at = authenticate(connection, security, timeout_s - (time.monotonic() - started))
    except BaseException:
        connection.close()
        raise
    return connection
