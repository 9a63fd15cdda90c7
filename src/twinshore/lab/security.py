"""How the lab's clusters are secured, and the certificates, passwords and tokens that go with it."""

from __future__ import annotations

from enum import StrEnum

from twinshore.fleet import SaslMechanism

ADMIN = "admin"


class LabSecurity(StrEnum):
    """What a cluster asks of its clients. The SASL kinds run over TLS too, with the cluster's `tls=True`."""

    PLAINTEXT = "plaintext"
    TLS = "tls"
    MTLS = "mtls"
    SASL_PLAIN = "sasl-plain"
    SASL_SCRAM_256 = "sasl-scram-256"
    SASL_SCRAM_512 = "sasl-scram-512"
    SASL_OAUTHBEARER = "sasl-oauthbearer"

    @property
    def mechanism(self) -> SaslMechanism | None:
        """The SASL mechanism, if it is SASL at all."""
        return _MECHANISMS.get(self)


_MECHANISMS = {
    LabSecurity.SASL_PLAIN: SaslMechanism.PLAIN,
    LabSecurity.SASL_SCRAM_256: SaslMechanism.SCRAM_SHA_256,
    LabSecurity.SASL_SCRAM_512: SaslMechanism.SCRAM_SHA_512,
    LabSecurity.SASL_OAUTHBEARER: SaslMechanism.OAUTHBEARER,
}
