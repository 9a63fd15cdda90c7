"""A fleet.Cluster as confluent-kafka's settings."""

from __future__ import annotations

import time
from typing import Any

from twinshore.fleet import Cluster, SaslMechanism, Security
from twinshore.kafka.oauth import fetch_token

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
