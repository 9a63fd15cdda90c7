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
    call_s: float | None = None,
    cluster: str = "",
) -> Connection:
    """Dials, learns API versions, authenticates, all within `timeout_s`; later calls get `call_s`, the same where it is
    not given. Errors name the address, and the cluster where it is given."""
    deadline = time.monotonic() + timeout_s
    transport = dial(address, security, connect_timeout_s=timeout_s, cluster=cluster)
    connection = Connection(transport, client_id=client_id, timeout_s=timeout_s if call_s is None else call_s)
    try:
        connection.handshake(timeout_s=deadline - time.monotonic())
        if security.sasl:
            connection.expires_at = authenticate(connection, security, deadline - time.monotonic())
    except BaseException:
        connection.close()
        raise
    return connection
