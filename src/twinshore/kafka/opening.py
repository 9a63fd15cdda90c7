"""A new control connection: dialled, handshaken, authenticated."""

from __future__ import annotations

import math
import secrets
import time

from twinshore.fleet import ConfigError, SaslMechanism, Security
from twinshore.kafka.connection import TIMEOUT_S, Connection
from twinshore.kafka.oauth import fetch_token
from twinshore.kafka.sasl import Credentials, choose, log_in
from twinshore.kafka.transport import dial

# Leave before the broker shows us the door: it closes a connection that speaks after its session's end.
_LIFETIME_PART = 0.8


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
    connection.address = address
    try:
        connection.handshake(timeout_s=deadline - time.monotonic())
        if security.sasl:
            connection.expires_at = _authenticate(connection, security, security.sasl, deadline)
    except BaseException:
        connection.close()
        raise
    return connection


def _authenticate(connection: Connection, security: Security, mechanism: SaslMechanism, deadline: float) -> float:
    """Returns when the session ends on time.monotonic(), `inf` for never."""

    def left_s() -> float:
        return max(0.1, deadline - time.monotonic())

    connection.hold(choose(mechanism, connection.place), timeout_s=left_s())
    credentials = _credentials(security, mechanism, timeout_s=left_s())
    lifetime_s = connection.hold(log_in(credentials, connection.place), timeout_s=left_s())
    return time.monotonic() + lifetime_s * _LIFETIME_PART if lifetime_s > 0 else math.inf


def _credentials(security: Security, mechanism: SaslMechanism, timeout_s: float) -> Credentials:
    """Read now, so a rotated secret counts at the next connection."""
    if mechanism is SaslMechanism.OAUTHBEARER:
        token = fetch_token(security, timeout_s=timeout_s)
        return Credentials(mechanism, security.username, token.text)
    if not security.username:
        raise ConfigError(f"SASL {mechanism} needs a username")
    return Credentials(mechanism, security.username, security.password.read(), secrets.token_urlsafe(24))
