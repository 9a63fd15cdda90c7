"""Push sources over HTTP: Apollo, and Twinshore's own server (`twinshore push serve`). Both are long polls."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from twinshore.client.core.pushes import PushTag, digest_of, read_tag
from twinshore.config.errors import ConfigError
from twinshore.config.frozen import APOLLO_KEY, PUSH_PATH
from twinshore.config.model import is_loopback
from twinshore.kafka.clock import steady_s, wall_ms
from twinshore.kafka.oauth import NoRedirects

RESPONSE_BYTES_MAX = 4 << 20
NOT_MODIFIED = 304
ERROR_BODY_BYTES_MAX = 200


def parse_server_url(given: str, what: str) -> str:
    """Returns the URL without a trailing slash. ConfigError for anything but http:// or https://."""
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("client.url-invalid", server=what, url=given)
    return given.rstrip("/")


def is_unencrypted(given: str) -> bool:
    """Whether others on the network may read and change responses."""
    parts = urlsplit(given)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def http_get(
    url: str, headers: Mapping[str, str], timeout_s: float, trust: ssl.SSLContext | None = None
) -> tuple[bytes, str] | None:
    """Returns body and ETag; None for 304. ConfigError for an error status or a body that is too long; network errors
    pass through.
    """
    request = urllib.request.Request(url, headers=dict(headers))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust), NoRedirects())
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            found = answer.read(RESPONSE_BYTES_MAX + 1)
            if len(found) > RESPONSE_BYTES_MAX:
                raise ConfigError("client.http-body-too-long", max=RESPONSE_BYTES_MAX)
            return found, answer.headers.get("ETag", "")
    except urllib.error.HTTPError as error:
        with error:
            if error.code == NOT_MODIFIED:
                return None
            said = error.read(ERROR_BODY_BYTES_MAX).decode("utf-8", "replace").partition("\n")[0].strip()
        raise ConfigError("client.http-status", status=error.code, cause=said or str(error.reason)) from error


LONG_POLL_TIMEOUT_S = 90.0  # Apollo answers after 60 s
REQUEST_TIMEOUT_S = 10.0
FIRST_NOTIFICATION_ID = -1


class Apollo:
    """Pushes from Apollo: the value of one `key` of a namespace.

    Apollo answers the long poll when the namespace changes, or after a minute. `access_key` signs requests. `server`:
    URL of Apollo's configuration service. `insecure_http`: trust http:// beyond this machine.
    """

    def __init__(
        self,
        server: str,
        app_id: str,
        *,
        namespace: str = "application",
        cluster: str = "default",
        key: str = APOLLO_KEY,
        access_key: str = "",
        insecure_http: bool = False,
    ) -> None:
        self._server, self._app, self._namespace = parse_server_url(server, "Apollo"), app_id, namespace
        self._cluster, self._key, self._secret = cluster, key, access_key
        self.in_clear = is_unencrypted(server) and not insecure_http
        self.name = f"Apollo {self._server}, {app_id}/{cluster}/{namespace}"
        self._number = FIRST_NOTIFICATION_ID
        self._read = FIRST_NOTIFICATION_ID - 1  # the notification of the text read last

    def news(self, stop: threading.Event) -> str | None:
        if self._read == self._number and not (self._hear() and not stop.is_set()):
            return None
        number = self._number
        path = "/".join(map(quote, (self._app, self._cluster, self._namespace)))
        found = self._get(f"/configs/{path}", REQUEST_TIMEOUT_S)
        if found is None:
            return None
        text = found.get("configurations", {}).get(self._key)
        if not isinstance(text, str):
            raise ConfigError("client.apollo-key-missing", key=self._key)
        self._read = number
        return text

    def _hear(self) -> bool:
        """Wait for the next notification. Returns whether this namespace changed."""
        asked = json.dumps([{"namespaceName": self._namespace, "notificationId": self._number}])
        words = urlencode({"appId": self._app, "cluster": self._cluster, "notifications": asked})
        found = self._get(f"/notifications/v2?{words}", LONG_POLL_TIMEOUT_S)
        for one in found or ():
            if one.get("namespaceName", "").removesuffix(".properties") == self._namespace.removesuffix(".properties"):
                self._number = int(one["notificationId"])
                return True
        return False

    def _get(self, path: str, timeout_s: float) -> Any:
        """Returns the response as JSON; None where nothing changed."""
        found = http_get(f"{self._server}{path}", self._signed(path), timeout_s)
        return None if found is None else json.loads(found[0])

    def _signed(self, path: str) -> dict[str, str]:
        if not self._secret:
            return {}
        at = str(wall_ms())
        digest = hmac.new(self._secret.encode(), f"{at}\n{path}".encode(), hashlib.sha1).digest()
        return {"Authorization": f"Apollo {self._app}:{base64.b64encode(digest).decode()}", "Timestamp": at}


PUSH_WAIT_S = 25
PUSH_WAIT_SLACK_S = 10.0
RETRY_DELAY_S = 1.0
OLDER_PUSH_IGNORED_S = 60.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{1,1024}")


class PushServer:
    """Pushes from Twinshore's own server, which answers once the push changes.

    `app`: the application's name there. Either `token` or `token_file`, read for each request. `ca_file`: trusted
    authorities, default the system's. `insecure_http`: trust http:// beyond this machine.
    """

    def __init__(
        self,
        server: str,
        app: str,
        *,
        token: str = "",
        token_file: Path | str | None = None,
        ca_file: Path | str | None = None,
        insecure_http: bool = False,
    ) -> None:
        if bool(token) == bool(token_file):
            raise ConfigError("client.token-or-file")
        self._server = parse_server_url(server, "push server")
        self._url = f"{self._server}{PUSH_PATH.format(app=app)}?wait_s={PUSH_WAIT_S}"
        self._given, self._token_file = token, Path(token_file) if token_file else None
        self._trust = ssl.create_default_context(cafile=str(ca_file)) if ca_file else None
        self.in_clear = is_unencrypted(server) and not insecure_http
        self.name = f"push server {self._server}, {app}"
        if token:
            _checked(token)
        self._tag: PushTag | None = None
        self._seen_s = 0.0  # when a server last returned it

    def news(self, stop: threading.Event) -> str | None:
        token = self._given if self._token_file is None else self._token_file.read_text(encoding="utf-8")
        headers = {"Authorization": f"Bearer {_checked(token)}"}
        if self._tag:
            headers["If-None-Match"] = str(self._tag)
        found = http_get(self._url, headers, PUSH_WAIT_S + PUSH_WAIT_SLACK_S, self._trust)
        if found is None or stop.is_set():
            self._seen_s = steady_s()
            return None
        text, tag = _whole(*found)
        if tag == self._tag or self._is_behind(tag):
            stop.wait(RETRY_DELAY_S)
            return None
        self._tag, self._seen_s = tag, steady_s()
        return text

    def _is_behind(self, tag: PushTag) -> bool:
        """Whether to ignore an older push. One of several servers may lag for a while. After a restore of the store
        pushes stay older, so they count after `OLDER_PUSH_IGNORED_S`.
        """
        older = self._tag is not None and tag.revision < self._tag.revision
        return older and steady_s() < self._seen_s + OLDER_PUSH_IGNORED_S


def _whole(body: bytes, header: str) -> tuple[str, PushTag]:
    tag = read_tag(header)
    if tag is None:
        raise ConfigError("client.push-without-tag")
    text = body.decode("utf-8", "replace")
    if digest_of(text) != tag.digest:
        raise ConfigError("client.push-cut-off")
    return text, tag


def _checked(token: str) -> str:
    token = token.strip()
    if not _TOKEN.fullmatch(token):
        raise ConfigError("client.token-invalid")
    return token
