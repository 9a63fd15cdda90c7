"""What a login by OpenID Connect asks, and what it believes of the answer: pure decisions."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from twinshore.config.sections.serve import OidcSettings
from twinshore.server.core.catalogue import Role

LOGIN_PATH, CALLBACK_PATH = "/login/oidc", "/login/oidc/callback"
LOGIN_MS = 10 * 60_000
CLOCK_SKEW_S = 60
TEXT_MAX = 255


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login of one browser, which keeps `secret` in a cookie. What is sent is derived from the secret."""

    secret: str

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()

    @property
    def state(self) -> str:
        return self._derived("state")

    @property
    def nonce(self) -> str:
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        return self._derived("verifier")

    def is_state(self, given: str) -> bool:
        return hmac.compare_digest(self.state.encode(), given.encode())

    def url(self, endpoint: str, settings: OidcSettings) -> str:
        """Returns where the browser is sent."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": callback_url(settings),
            "scope": " ".join(settings.scopes),
            "state": self.state,
            "nonce": self.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"


def callback_url(settings: OidcSettings) -> str:
    return settings.public_url.rstrip("/") + CALLBACK_PATH


def claims_fault(claims: Mapping[str, Any], settings: OidcSettings, nonce: str, now_s: float) -> str:
    """Returns why a token whose signature is right is not believed; empty: it is."""
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if claims.get("iss") != settings.issuer:
        return "is of another issuer"
    if settings.client_id not in audiences or claims.get("azp", settings.client_id) != settings.client_id:
        return "is for another client"
    if claims.get("nonce") != nonce:
        return "is of another login"
    times = [claims.get("exp"), claims.get("iat"), claims.get("nbf", 0)]
    if not all(isinstance(one, int | float) for one in times):
        return "has no time"
    expires_s, *begins_s = times
    if not max(begins_s) - CLOCK_SKEW_S <= now_s < expires_s + CLOCK_SKEW_S:
        return "has ended, or the clocks differ"
    subject = claims.get("sub")
    return "" if isinstance(subject, str) and 0 < len(subject) <= TEXT_MAX else "names no person"


@dataclass(frozen=True, slots=True)
class ProviderPerson:
    """A person as the provider says. `role` is None where no group has one."""

    issuer: str
    subject: str
    name: str
    role: Role | None

    @property
    def identity(self) -> str:
        """Issuer and subject are the person; names and addresses may be given to another one."""
        return hashlib.sha256(f"{self.issuer}\n{self.subject}".encode("utf-8", "surrogatepass")).hexdigest()


def person_of(claims: Mapping[str, Any], settings: OidcSettings) -> ProviderPerson:
    names = (claims.get(key) for key in ("preferred_username", "email", "name", "sub"))
    usable = (name.strip()[:100] for name in names if isinstance(name, str) and name.strip() and name.isprintable())
    given = claims.get(settings.groups_claim)
    groups = given if isinstance(given, list) else [given]
    roles = [Role(role) for group, role in settings.roles if group in groups]
    role = max(roles, key=list(Role).index) if roles else Role(settings.default_role) if settings.default_role else None
    return ProviderPerson(settings.issuer, claims["sub"], next(usable, "person"), role)
