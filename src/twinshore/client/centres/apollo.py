"""Apollo, by its HTTP long poll: a request that is answered when a namespace has changed, or after a minute.

The push is the value of one key of a namespace, `twinshore.clients` where nothing else is said. Requests are signed
where the application has an access key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from typing import Any
from urllib.parse import quote, urlencode

from twinshore.client.centres.asking import address, ask, is_in_clear
from twinshore.fleet import ConfigError
from twinshore.kafka.clock import wall_ms

POLL_S_MAX = 90.0  # Apollo answers after 60 s
ASK_S_MAX = 10.0
FIRST = -1


class Apollo:
    """`server`: the address of its configuration service. `insecure_http`: what an http:// address beyond this machine
    answers is believed in whole."""

    def __init__(
        self,
        server: str,
        app_id: str,
        *,
        namespace: str = "application",
        cluster: str = "default",
        key: str = "twinshore.clients",
        access_key: str = "",
        insecure_http: bool = False,
    ) -> None:
        self._server, self._app, self._namespace = address(server, "Apollo's"), app_id, namespace
        self._cluster, self._key, self._secret = cluster, key, access_key
        self.in_clear = is_in_clear(server) and not insecure_http
        self.name = f"Apollo {self._server}, {app_id}/{cluster}/{namespace}"
        self._number = FIRST
        self._read = FIRST - 1  # of which notification the text was read

    def news(self, stop: threading.Event) -> str | None:
        if self._read == self._number and not (self._hear() and not stop.is_set()):
            return None
        number = self._number
        found = self._get(f"/configs/{quote(self._app)}/{quote(self._cluster)}/{quote(self._namespace)}", ASK_S_MAX)
        if found is None:
            return None
        text = found.get("configurations", {}).get(self._key)
        if not isinstance(text, str):
            raise ConfigError(f"{self.name} has no key {self._key}")
        self._read = number
        return text

    def _hear(self) -> bool:
        """Waits for the next notification; whether it was one of this namespace."""
        asked = json.dumps([{"namespaceName": self._namespace, "notificationId": self._number}])
        words = urlencode({"appId": self._app, "cluster": self._cluster, "notifications": asked})
        found = self._get(f"/notifications/v2?{words}", POLL_S_MAX)
        for one in found or ():
            if one.get("namespaceName", "").removesuffix(".properties") == self._namespace.removesuffix(".properties"):
                self._number = int(one["notificationId"])
                return True
        return False

    def _get(self, path: str, timeout_s: float) -> Any:
        """What it answers, as JSON; None where nothing has changed."""
        try:
            found = ask(f"{self._server}{path}", self._signed(path), timeout_s)
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error.message}") from error
        return None if found is None else json.loads(found[0])

    def _signed(self, path: str) -> dict[str, str]:
        if not self._secret:
            return {}
        at = str(wall_ms())
        digest = hmac.new(self._secret.encode(), f"{at}\n{path}".encode(), hashlib.sha1).digest()
        return {"Authorization": f"Apollo {self._app}:{base64.b64encode(digest).decode()}", "Timestamp": at}
