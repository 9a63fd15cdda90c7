"""Bearer tokens, from a file or from a token endpoint with client credentials."""

from __future__ import annotations

import base64
import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinshore.config.errors import ConfigError, KafkaError
from twinshore.config.model import Security

_ANSWER_BYTES_MAX = 1 << 20
_LATER = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Token:
    """`expires_s`: Unix time; 0 when unknown."""

    text: str = field(repr=False)
    expires_s: float = 0.0


def fetch_token(security: Security, *, timeout_s: float) -> Token:
    """Returns a current token. Without file or endpoint it is unsecured, for lab listeners only."""
    if security.token_file:
        text = _read(security.token_file)
    elif security.token_url:
        text = _ask(security, timeout_s)
    else:
        text = unsecured_token(security.username, lifetime_s=3600)
    return Token(text, _expiry(text))


def unsecured_token(principal: str, *, lifetime_s: float) -> str:
    """A JWT with algorithm none, for brokers' OAuthBearerUnsecuredValidatorCallbackHandler."""
    # A broker refuses a token from the future, even by the fraction of a millisecond that rounding adds.
    now_s = int(time.time()) - 1
    claims = {"sub": principal, "iat": now_s, "exp": now_s + lifetime_s}
    return ".".join((_part({"alg": "none"}), _part(claims), ""))


def _part(value: dict[str, object] | dict[str, str] | dict[str, float | str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _read(path: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError("kafka.unreadable-token-file", path=path, cause=error.strerror) from error
    except UnicodeDecodeError as error:
        raise ConfigError("kafka.unreadable-token-file", path=path, cause="it is not UTF-8 text") from error
    if not text:
        raise ConfigError("kafka.unreadable-token-file", path=path, cause="it is empty")
    return text


def _ask(security: Security, timeout_s: float) -> str:
    url = security.token_url
    try:
        scheme = urllib.parse.urlsplit(url).scheme
    except ValueError:
        scheme = ""
    if scheme not in {"http", "https"}:
        raise ConfigError("kafka.invalid-token-url", url=url)
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
        answer = json.loads(read_answer(request, timeout_s))
    except urllib.error.HTTPError as error:
        with error:
            raise _token_refused(url, error) from error
    except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
        raise KafkaError(f"{url}: no token: {_reason(error)}", retriable=True) from error
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
        raise KafkaError(f"{url}: the answer holds no access_token")
    return token


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would send a secret to another host. A redirected POST becomes a GET without body."""

    def redirect_request(self, *_: Any) -> None:
        """Returns None, so that the response becomes an HTTPError."""


def read_answer(request: urllib.request.Request, timeout_s: float) -> bytes:
    """Returns the body, if the whole comes in time. Socket timeouts restart with each byte."""
    deadline = time.monotonic() + max(0.1, timeout_s)
    done: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            opener = urllib.request.build_opener(NoRedirects)
            with opener.open(request, timeout=max(0.1, deadline - time.monotonic())) as response:
                done.put(_read_all(response, deadline))
        except Exception as error:
            done.put(error)

    # Headers and TLS may arrive slowly inside one blocking call: so the deadline is kept from outside.
    threading.Thread(target=ask, name="token endpoint", daemon=True).start()
    try:
        found = done.get(timeout=max(0.1, deadline - time.monotonic()))
    except queue.Empty:
        raise TimeoutError("no whole answer in time") from None
    if isinstance(found, Exception):
        raise found
    return found


def _read_all(response: http.client.HTTPResponse, deadline: float) -> bytes:
    parts: list[bytes] = []
    room = _ANSWER_BYTES_MAX
    while room > 0 and (part := response.read1(room)):
        parts.append(part)
        room -= len(part)
        if time.monotonic() > deadline:
            raise TimeoutError("no whole answer in time")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _token_refused(url: str, error: urllib.error.HTTPError) -> KafkaError:
    if 300 <= error.code < 400:
        onward = error.headers.get("Location", "nowhere")
        return KafkaError(
            f"{url}: the token endpoint answered {error.code} and points to {onward}",
            hint="secrets are not sent on to other addresses; set token_url to where the endpoint is",
        )
    return KafkaError(
        f"{url}: the token endpoint answered {error.code} {error.reason}",
        retriable=error.code >= 500 or error.code in _LATER,
        hint="check username, password and token_scope",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "its JSON is nested too deep"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not whole HTTP: {error!r:.200}"
    return str(error)


def _expiry(token: str) -> float:
    # Opaque tokens are fine too: the broker says how long the session lasts.
    try:
        claims = token.split(".")[1]
        expiry = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))).get("exp", 0)
        return float(expiry)
    except (IndexError, ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        return 0.0
