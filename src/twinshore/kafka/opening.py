"""How a fleet.Cluster is entered: by a new control connection, dialled, handshaken and authenticated, or by
confluent-kafka's settings."""

from __future__ import annotations

import math
import secrets
import time
from typing import Any

from twinshore.fleet import Cluster, ConfigError, SaslMechanism, Security
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


_TOKEN_TIMEOUT_S = 10.0
_TOKEN_LIFETIME_S = 300.0


def client_settings(cluster: Cluster) -> dict[str, Any]:
    """For a Producer, Consumer or AdminClient. Holds secrets as they stand now: never log it, never keep it."""
    security = cluster.security
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(cluster.bootstrap),
        "security.protocol": security.protocol,
    }
    if security.tls:
        settings |= _tls(security)
    if security.sasl is SaslMechanism.OAUTHBEARER:
        settings |= _oauthbearer(security)
    elif security.sasl:
        settings |= {
            "sasl.mechanism": security.sasl.value,
            "sasl.username": security.username,
            "sasl.password": security.password.read(),
        }
    return settings


def _tls(security: Security) -> dict[str, Any]:
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https" if security.check_hostname else "none"}
    files = {"ca": security.ca_file, "certificate": security.cert_file, "key": security.key_file or security.cert_file}
    settings |= {f"ssl.{kind}.location": path for kind, path in files.items() if path}
    if security.key_password:
        settings["ssl.key.password"] = security.key_password.read()
    return settings


def _oauthbearer(security: Security) -> dict[str, Any]:
    def token(_: str) -> tuple[str, float]:
        found = fetch_token(security, timeout_s=_TOKEN_TIMEOUT_S)
        return found.text, found.expires_s or time.time() + _TOKEN_LIFETIME_S

    return {"sasl.mechanism": SaslMechanism.OAUTHBEARER.value, "oauth_cb": token}
