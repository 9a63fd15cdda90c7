"""TLS contexts from files, and TLS failures in plain words."""

from __future__ import annotations

import ssl
from pathlib import Path

from twinshore.fleet import ConfigError, KafkaError, Security


def client_context(security: Security) -> ssl.SSLContext:
    """Read anew for each connection, so that exchanged certificates count without a restart."""
    for name, path in (
        ("ca_file", security.ca_file),
        ("cert_file", security.cert_file),
        ("key_file", security.key_file),
    ):
        if path and not Path(path).is_file():
            raise ConfigError(f"{name} {path} is not a file", hint="it should hold PEM text")
    if security.key_file and not security.cert_file:
        raise ConfigError("key_file is set but cert_file is not", hint="a client certificate needs both")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    try:
        if security.ca_file:
            context.load_verify_locations(security.ca_file)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"ca_file {security.ca_file} holds no usable certificate: {error}") from error
    if security.cert_file:
        _load_own_certificate(context, security)
    return context


def _load_own_certificate(context: ssl.SSLContext, security: Security) -> None:
    # Always a password, be it empty: without one OpenSSL asks at the terminal and a daemon hangs.
    password = security.key_password.read()
    try:
        context.load_cert_chain(security.cert_file, security.key_file or None, password=password)
    except (ssl.SSLError, OSError, ValueError) as error:
        files = f"cert_file {security.cert_file} with key_file {security.key_file or security.cert_file}"
        raise ConfigError(
            f"{files} cannot be used: {error}",
            hint="do certificate and key belong together, and is the password right?",
        ) from error


def explain_tls_error(error: ssl.SSLError, place: str) -> KafkaError:
    """A KafkaError that says which side refused what."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return KafkaError(
            f"{place}: its certificate is not accepted: {error.verify_message}",
            hint="ca_file must hold the issuer of the brokers' certificates, and the address must be one it names",
        )
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return KafkaError(f"{place}: the broker closed the TLS connection", retriable=True)
    reason = error.reason or str(error)
    if reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}:
        return KafkaError(f"{place}: the answer is not TLS", hint="this listener may be PLAINTEXT or SASL_PLAINTEXT")
    if "ALERT" in reason:
        return KafkaError(
            f"{place}: the broker refused the TLS connection: {reason.replace('_', ' ').lower()}",
            hint="if it asks for client certificates, cert_file and key_file must hold one that it trusts",
        )
    return KafkaError(f"{place}: TLS failed: {reason}", retriable=True)
