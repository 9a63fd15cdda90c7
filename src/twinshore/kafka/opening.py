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
    given: str = "",
) -> Connection:
    """Dials, learns API versions, authenticates, all within `timeout_s`; later calls get `call_s`, the same where it is
    not given. Errors name the address, and the cluster where it is given. `given`: a password in place of the one that
    is kept."""
    deadline = time.monotonic() + timeout_s
    transport = dial(address, security, connect_timeout_s=timeout_s, cluster=cluster)
    connection = Connection(transport, client_id=client_id, timeout_s=timeout_s if call_s is None else call_s)
    connection.address = address
    try:
        connection.handshake(timeout_s=deadline - time.monotonic())
        if security.sasl:
            connection.expires_at = _authenticate(connection, security, security.sasl, deadline, given)
    except BaseException:
        connection.close()
        raise
    return connection


def _authenticate(
    connection: Connection, security: Security, mechanism: SaslMechanism, deadline: float, given: str
) -> float:
    """Returns when the session ends on time.monotonic(), `inf` for never."""

    def left_s() -> float:
        return max(0.1, deadline - time.monotonic())

    connection.hold(choose(mechanism, connection.place), timeout_s=left_s())
    credentials = credentials_of(security, mechanism, left_s(), given)
    lifetime_s = connection.hold(log_in(credentials, connection.place), timeout_s=left_s())
    return time.monotonic() + lifetime_s * _LIFETIME_PART if lifetime_s > 0 else math.inf


def credentials_of(security: Security, mechanism: SaslMechanism, timeout_s: float, given: str = "") -> Credentials:
    """Read now, so a rotated secret counts at the next connection; a password or a token that was `given` needs no
    reading."""
    if mechanism is SaslMechanism.OAUTHBEARER:
        return Credentials(mechanism, security.username, given or fetch_token(security, timeout_s=timeout_s).text)
    if not security.username:
        raise ConfigError(f"SASL {mechanism} needs a username")
    return Credentials(mechanism, security.username, given or security.password.read(), secrets.token_urlsafe(24))
