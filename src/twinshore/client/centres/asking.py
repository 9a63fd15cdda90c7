"""One request to a centre that speaks HTTP, and what it answers."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from twinshore.fleet import ConfigError

ANSWER_BYTES_MAX = 4 << 20
NOT_CHANGED = 304
SAID_MAX = 200


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What authorizes a request is for the server that was named, and nobody else's answer is believed."""

    def redirect_request(self, *_: object) -> None:
        return None


def address(given: str, what: str) -> str:
    """Without a slash at its end; ConfigError where it is none that can be asked."""
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{what} address {given!r} is no http:// or https:// address")
    return given.rstrip("/")


def is_in_clear(given: str) -> bool:
    """Whether anybody on the way may read and change what that address answers."""
    parts = urlsplit(given)
    host = parts.hostname or ""
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    return parts.scheme == "http" and not is_here


def ask(
    url: str, headers: Mapping[str, str], timeout_s: float, trust: ssl.SSLContext | None = None
) -> tuple[bytes, str] | None:
    """What it answers, with the answer's tag; None where nothing has changed. ConfigError where it refuses, and
    whatever a network raises."""
    request = urllib.request.Request(url, headers=dict(headers))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust), _NoRedirect())
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            found = answer.read(ANSWER_BYTES_MAX + 1)
            if len(found) > ANSWER_BYTES_MAX:
                raise ConfigError(f"it answers with more than {ANSWER_BYTES_MAX:,} bytes")
            return found, answer.headers.get("ETag", "")
    except urllib.error.HTTPError as error:
        with error:
            if error.code == NOT_CHANGED:
                return None
            said = error.read(SAID_MAX).decode("utf-8", "replace").partition("\n")[0].strip()
        raise ConfigError(f"it answers {error.code}: {said or error.reason}") from error
