"""Bearer tokens: from a file that something else renews, or from a token endpoint with client credentials."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from twinshore.fleet import ConfigError, KafkaError, Security

_ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """`expires_s` is Unix time; 0 when the token does not say."""

    text: str
    expires_s: float = 0.0


def fetch_token(security: Security, *, timeout_s: float) -> Token:
    """A token as it stands now. Without file or endpoint it is an unsecured one, which only lab listeners accept."""
    if security.token_file:
        text = _read(security.token_file)
    elif security.token_url:
        text = _ask(security, timeout_s)
    else:
        text = unsecured_token(security.username, lifetime_s=3600)
    return Token(text, _expiry(text))


def unsecured_token(principal: str, *, lifetime_s: float) -> str:
    """A JWT with algorithm none, for brokers' OAuthBearerUnsecuredValidatorCallbackHandler."""
    # A broker refuses a token from the future, be it by the part of a millisecond that rounding adds.
    now_s = int(time.time()) - 1
    claims = {"sub": principal, "iat": now_s, "exp": now_s + lifetime_s}
    return ".".join((_part({"alg": "none"}), _part(claims), ""))


def _part(value: dict[str, object] | dict[str, str] | dict[str, float | str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"token_file {path} cannot be read: {error.strerror}") from error
    if not text:
        raise ConfigError(f"token_file {path} is empty")
    return text


def _ask(security: Security, timeout_s: float) -> str:
    url = security.token_url
    if urllib.parse.urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigError(f"token_url {url} is neither http nor https")
    form = {"grant_type": "client_credentials"}
    if security.token_scope:
        form["scope"] = security.token_scope
    credentials = f"{urllib.parse.quote(security.username)}:{urllib.parse.quote(security.password.read())}"
    request = urllib.request.Request(
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=max(0.1, timeout_s)) as response:
            answer = json.loads(response.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            raise KafkaError(
                f"{url}: the token endpoint answered {error.code} {error.reason}",
                retriable=error.code >= 500,
                hint="check username, password and token_scope",
            ) from error
    except (OSError, ValueError) as error:
        raise KafkaError(f"{url}: no token: {error}", retriable=True) from error
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token:
        raise KafkaError(f"{url}: the answer holds no access_token")
    return token


def _expiry(token: str) -> float:
    # Opaque tokens are fine too: the broker says how long the session lasts.
    try:
        claims = token.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp", 0)
        return float(expiry)
    except (IndexError, ValueError, AttributeError, TypeError):
        return 0.0
