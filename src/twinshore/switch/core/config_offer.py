"""Checks what is pushed to an application's clients, and parses bearer tokens. A push holds no secret: the store keeps
none, and the application sets secrets itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from twinshore.client.core.pushes import ApplicationSettings, read_pushed
from twinshore.client.sites import Site
from twinshore.config.errors import ConfigError
from twinshore.config.sections.clusters import CLUSTER_NAME

DIGEST_CHARS_SHOWN = 8  # of a token's digest: enough to name it
EVERY_TOPIC = ("*",)  # the application knows which of them it has
_SECRET = re.compile(r"password|secret|jaas|ssl\.key\.pem|ssl\.keystore\.key|token$", re.IGNORECASE)


def check_app(app: str) -> str:
    """Returns the name unchanged. Raises ConfigError if the name is invalid."""
    if not CLUSTER_NAME.fullmatch(app):
        raise ConfigError("switch.bad-app-name", app=app)
    return app


def check_offer(text: str) -> Mapping[str, Site]:
    """Returns the clusters of a push by name. Raises ConfigError, without repeating secrets, if clients would refuse
    the push or if it holds a secret.
    """
    pushed = read_pushed(text, ApplicationSettings(), EVERY_TOPIC)
    raw = json.loads(text)
    for some in (raw.get("settings", {}), *raw["clusters"].values()):
        _no_secret(some)
    return pushed.sites


def _no_secret(settings: Mapping[str, Any]) -> None:
    if found := sorted(name for name in settings if _SECRET.search(name)):
        raise ConfigError("switch.secret-in-push", setting=found[0])


def parse_bearer_token(header: str) -> str:
    """Returns the token of an `Authorization` header, or an empty string."""
    kind, _, token = header.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
