"""An OpenID Connect provider: its discovery document, its keys, and the exchange of a code for what it says."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from twinshore.config.errors import ConfigError, RefusedError
from twinshore.config.sections.serve import OidcSettings, is_private_url
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.oauth import read_answer
from twinshore.server.core.oidc import LoginAttempt, ProviderPerson, callback_url, claims_fault, person_of

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
KEPT_S, KEYS_AGAIN_S = 3600.0, 10.0
# Signatures by a key that the provider alone has.
ALGORITHMS = ("RS256", "ES256")


class OidcProvider:
    """One provider. Threads may share it; what it keeps is only replaced as a whole."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._document: tuple[Mapping[str, Any], float] | None = None
        self._keys: tuple[KeySet, float] | None = None
        self._again_s = 0.0

    def login_url(self, attempt: LoginAttempt) -> str:
        return attempt.url(self._endpoint("authorization_endpoint"), self.settings)

    def person(self, attempt: LoginAttempt, code: str) -> ProviderPerson:
        """Exchanges the code. Raises ConfigError if the provider is away, RefusedError for what is not believed."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback_url(self.settings),
            "code_verifier": attempt.verifier,
        }
        token = self._ask_token(form).get("id_token")
        claims = self._verified(token if isinstance(token, str) else "")
        if fault := claims_fault(claims, self.settings, attempt.nonce, wall_ms() / 1000):
            raise self._refuse(f"its token {fault}")
        return person_of(claims, self.settings)

    def _ask_token(self, form: dict[str, str]) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        methods = self._discovered().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        try:
            secret = self.settings.client_secret.read()
        except ConfigError as error:
            log.error(f"no login by {self.settings.issuer}: {error.message}")
            raise self._away("the platform cannot read its client secret; its log says why") from error
        if secret and "client_secret_basic" in methods:
            both = ":".join(urllib.parse.quote(one, safe="") for one in (self.settings.client_id, secret))
            headers["Authorization"] = f"Basic {base64.b64encode(both.encode()).decode()}"
        else:
            form = {**form, "client_id": self.settings.client_id, **({"client_secret": secret} if secret else {})}
        body = urllib.parse.urlencode(form).encode()
        return self._fetch(urllib.request.Request(self._endpoint("token_endpoint"), body, headers))

    def _verified(self, token: str) -> Mapping[str, Any]:
        """Returns the claims of a token that the provider has signed. An unknown key may be a new one."""
        while True:
            try:
                return jwt.decode(token, self._key_set(), ALGORITHMS).claims
            except (JoseError, ValueError, TypeError) as error:
                if steady_s() < self._again_s:
                    log.warning(f"a token of {self.settings.issuer} is not believed: {type(error).__name__}")
                    raise self._refuse("its token is not signed as it must be") from None
            self._keys, self._again_s = None, steady_s() + KEYS_AGAIN_S

    def _key_set(self) -> KeySet:
        kept = self._keys
        if kept is None or steady_s() - kept[1] > KEPT_S:
            found = self._fetch(urllib.request.Request(self._endpoint("jwks_uri")))
            try:
                usable = [one for one in found["keys"] if one["kty"] in ("RSA", "EC") and one.get("use") != "enc"]
                kept = self._keys = KeySet.import_key_set({"keys": usable}), steady_s()
            except (JoseError, LookupError, TypeError, ValueError, AttributeError):
                raise self._away("its keys cannot be read") from None
        return kept[0]

    def _discovered(self) -> Mapping[str, Any]:
        kept = self._document
        if kept is None or steady_s() - kept[1] > KEPT_S:
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            found = self._fetch(urllib.request.Request(url))
            if found.get("issuer") != self.settings.issuer:
                raise self._away("it calls itself otherwise")
            kept = self._document = found, steady_s()
        return kept[0]

    def _endpoint(self, name: str) -> str:
        url = self._discovered().get(name)
        if not isinstance(url, str) or not is_private_url(url):
            raise self._away(f"its {name} is no https address")
        return url

    def _fetch(self, request: urllib.request.Request) -> Mapping[str, Any]:
        """Returns a JSON object: a short one, in time, and from this address itself."""
        request.add_header("Accept", "application/json")
        try:
            found = json.loads(read_answer(request, TIMEOUT_S))
        except urllib.error.HTTPError as error:
            with error:
                if request.data is not None and error.code == 400:
                    raise self._refuse("it does not take the code, which has ended or was used") from None
                raise self._away(f"it answers {error.code}") from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise self._away(str(getattr(error, "reason", "")) or type(error).__name__) from None
        if not isinstance(found, dict):
            raise self._away("its answer is no object")
        return found

    def _away(self, cause: str) -> ConfigError:
        return ConfigError("server.provider-away", name=self.settings.name, cause=cause)

    def _refuse(self, why: str) -> RefusedError:
        return RefusedError("server.provider-refused", name=self.settings.name, why=why)
