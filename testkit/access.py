"""Access to a lab cluster: kinds of security, users, secrets, and the matching broker settings."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from testkit.certificates import CertificateAuthority, TokenIssuer, replace_secret_file
from testkit.clients import alter_brokers, set_scram_password
from twinshore.config.model import Cluster, SaslMechanism, Secret, Security
from twinshore.lab.processes import LabError

ADMIN = "admin"


class LabSecurity(StrEnum):
    """What a cluster asks of its clients. The SASL kinds run over TLS with the cluster's `tls=True`."""

    PLAINTEXT = "plaintext"
    TLS = "tls"
    MTLS = "mtls"
    SASL_PLAIN = "sasl-plain"
    SASL_SCRAM_256 = "sasl-scram-256"
    SASL_SCRAM_512 = "sasl-scram-512"
    SASL_OAUTHBEARER = "sasl-oauthbearer"

    @property
    def mechanism(self) -> SaslMechanism | None:
        """The SASL mechanism, None without SASL."""
        return _MECHANISMS.get(self)


_MECHANISMS = {
    LabSecurity.SASL_PLAIN: SaslMechanism.PLAIN,
    LabSecurity.SASL_SCRAM_256: SaslMechanism.SCRAM_SHA_256,
    LabSecurity.SASL_SCRAM_512: SaslMechanism.SCRAM_SHA_512,
    LabSecurity.SASL_OAUTHBEARER: SaslMechanism.OAUTHBEARER,
}


_TOKEN_LIFE_S = 3_600.0
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_BEARER_CHECK = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"

# The first release of Kafka that supports it under KRaft.
_SINCE = {
    LabSecurity.SASL_SCRAM_256: (3, 5),
    LabSecurity.SASL_SCRAM_512: (3, 5),
    LabSecurity.SASL_OAUTHBEARER: (3, 9),
}
_AUTHORIZER_SINCE = (3, 3)


class LabAccess:
    """The security of one cluster. The user `admin` always exists and may do everything."""

    def __init__(
        self, kind: LabSecurity, *, tls: bool, authorizer: bool, users: Sequence[str], version: str, cluster: str
    ) -> None:
        self.kind = kind
        self.tls = tls or kind in (LabSecurity.TLS, LabSecurity.MTLS)
        self._authorizer = authorizer
        self._cluster = cluster
        self._passwords = {name: secrets.token_urlsafe(12) for name in (ADMIN, *users)}
        self._running: Cluster | None = None
        self._node_ids: tuple[int, ...] = ()
        release = tuple(int(part) for part in version.split(".")[:2])
        first = _SINCE.get(kind, (0, 0))
        if release < first:
            raise LabError(f"Kafka {version} has no {kind} with KRaft: take {first[0]}.{first[1]} or newer")
        if authorizer and kind in (LabSecurity.PLAINTEXT, LabSecurity.TLS):
            raise LabError(f"an authorizer needs users, but {kind} clients have no name")
        if authorizer and release < _AUTHORIZER_SINCE:
            raise LabError(f"Kafka {version} has no authorizer with KRaft: take 3.3 or newer")
        if tls and kind is LabSecurity.PLAINTEXT:
            raise LabError("tls=True asks for TLS, security asks for plaintext: take LabSecurity.TLS")

    def prepare(self, folder: Path) -> None:
        """Makes the keys. Call before reading any broker settings."""
        self._folder = folder
        folder.mkdir(parents=True, mode=0o700)
        if self.tls:
            self._authority = CertificateAuthority(folder, self._cluster)
            self._broker_keys = self._authority.issue("broker")
        if self.kind is LabSecurity.SASL_OAUTHBEARER:
            self._tokens = TokenIssuer(folder)
        for name, password in self._passwords.items():
            self._give(name, password)

    def opened(self, inside: Cluster, node_ids: tuple[int, ...], *, wan: bool) -> None:
        """Applies what needs a running cluster. `inside` reaches the cluster without security."""
        self._running, self._node_ids, self._wan = inside, node_ids, wan
        for name, password in self._passwords.items():
            self._tell(name, password)

    @property
    def protocol(self) -> str:
        return Security(tls=self.tls, sasl=self.kind.mechanism).protocol

    def listener_settings(self) -> dict[str, str]:
        """Settings of a client listener, without prefix."""
        settings: dict[str, str] = {}
        if self.tls:
            settings["ssl.keystore.type"] = "PEM"
            settings["ssl.keystore.location"] = str(self._broker_keys.store_file)
            settings["ssl.truststore.type"] = "PEM"
            settings["ssl.truststore.location"] = str(self._authority.ca_file)
        if self.kind is LabSecurity.MTLS:
            settings["ssl.client.auth"] = "required"
            settings["ssl.principal.mapping.rules"] = r"RULE:^CN=([^,]+).*$/$1/,DEFAULT"
        mechanism = self.kind.mechanism
        if mechanism:
            settings["sasl.enabled.mechanisms"] = mechanism.value
            settings[f"{mechanism.value.lower()}.sasl.jaas.config"] = self._jaas()
        if self.kind is LabSecurity.SASL_OAUTHBEARER:
            settings["oauthbearer.sasl.server.callback.handler.class"] = _BEARER_CHECK
            settings["sasl.oauthbearer.jwks.endpoint.url"] = self._tokens.jwks_file.as_uri()
        return settings

    def cluster_settings(self) -> dict[str, str]:
        """Broker settings that belong to no listener."""
        if not self._authorizer:
            return {}
        # The brokers and the lab use the internal listener, without a user name.
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        }

    def jvm_flags(self) -> tuple[str, ...]:
        """A broker reads keys only from URLs allowed at its start."""
        if self.kind is not LabSecurity.SASL_OAUTHBEARER:
            return ()
        return (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._tokens.jwks_file.as_uri()}",)

    def add_user(self, name: str, password: str = "") -> None:
        """Adds a user, or changes the password, while the cluster runs. See `read_at_start_only`."""
        self._passwords[name] = password or secrets.token_urlsafe(12)
        self._give(name, self._passwords[name])
        self._tell(name, self._passwords[name])

    @property
    def read_at_start_only(self) -> bool:
        """Whether brokers learn of a new user only by a restart, as with SASL PLAIN."""
        return self.kind is LabSecurity.SASL_PLAIN

    def renew_token(self, name: str, *, life_s: float = _TOKEN_LIFE_S) -> None:
        replace_secret_file(self._token_file(name), self._tokens.token(name, life_s=life_s).encode())

    def rotate_certificates(self) -> str:
        """Replaces the certificates of brokers and users, in the same files, and notifies brokers.

        Returns the brokers' new certificate, which they serve within a second.
        """
        new = self._authority.issue("broker")
        for name in self._passwords:
            self._authority.issue(name)
        listeners = ("client", "wan") if self._wan else ("client",)
        store = str(self._broker_keys.store_file)
        settings = {f"listener.name.{listener}.ssl.keystore.location": store for listener in listeners}
        alter_brokers(self._cluster_inside(), self._node_ids, settings)
        return new.cert_file.read_text(encoding="ascii")

    def security_of(self, name: str) -> Security:
        if name not in self._passwords:
            raise LabError(f"cluster {self._cluster} has no user {name}", user=name)
        ca_file = str(self._authority.ca_file) if self.tls else ""
        if self.kind is LabSecurity.MTLS:
            cert_file, key_file = (str(self._folder / f"{name}.{kind}.pem") for kind in ("cert", "key"))
            return Security(tls=True, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
        if self.kind is LabSecurity.SASL_OAUTHBEARER:
            token_file = str(self._token_file(name))
            return Security(tls=self.tls, ca_file=ca_file, sasl=self.kind.mechanism, token_file=token_file)
        if self.kind.mechanism:
            return Security(
                tls=self.tls,
                ca_file=ca_file,
                sasl=self.kind.mechanism,
                username=name,
                password=Secret(file=str(self._password_file(name))),
            )
        return Security(tls=self.tls, ca_file=ca_file)

    def _give(self, name: str, password: str) -> None:
        replace_secret_file(self._password_file(name), password.encode())
        if self.kind is LabSecurity.MTLS:
            self._authority.issue(name)
        if self.kind is LabSecurity.SASL_OAUTHBEARER:
            self.renew_token(name)

    def _tell(self, name: str, password: str) -> None:
        mechanism = self.kind.mechanism
        if mechanism in (SaslMechanism.SCRAM_SHA_256, SaslMechanism.SCRAM_SHA_512):
            set_scram_password(self._cluster_inside(), name, password, mechanism)

    def _cluster_inside(self) -> Cluster:
        if self._running is None:
            raise LabError(f"cluster {self._cluster} does not run")
        return self._running

    def _jaas(self) -> str:
        if self.kind is LabSecurity.SASL_PLAIN:
            users = " ".join(f'user_{name}="{password}"' for name, password in self._passwords.items())
            return f"{_PLAIN_MODULE} required {users};"
        module = _BEARER_MODULE if self.kind is LabSecurity.SASL_OAUTHBEARER else _SCRAM_MODULE
        return f"{module} required;"

    def _password_file(self, name: str) -> Path:
        return self._folder / f"{name}.password"

    def _token_file(self, name: str) -> Path:
        return self._folder / f"{name}.token"
