"""Serves pushes from the configured store, and manages tokens. A token permits to read an application's push, or to
change it. Each token is shown once, when made.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from twinshore.client.core.pushes import digest_of
from twinshore.config.errors import ConfigError
from twinshore.config.sections import push
from twinshore.config.settings import Settings
from twinshore.kafka.clock import wall_ms
from twinshore.state.core.values import AuditRow
from twinshore.state.opening import open_or_create
from twinshore.state.proxies import PushTokenRow
from twinshore.state.store import Store
from twinshore.switch.config_service.push_server import serve as until_ended
from twinshore.switch.core.config_offer import DIGEST_CHARS_SHOWN, check_app


def serve(settings: Settings) -> None:
    with open_or_create(settings) as store:
        until_ended(settings.of(push.SECTION), store)


AUDIT_KIND = "push token"
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class NewToken:
    """`may_push`: may change the push, besides reading."""

    app: str
    may_push: bool = False


def make_token(new_token: NewToken, store: Store, *, by: str) -> str:
    """Returns the token, which is never shown again."""
    app, token, now_ms = check_app(new_token.app), secrets.token_urlsafe(TOKEN_BYTES), wall_ms()
    row = PushTokenRow(digest_of(token), app, new_token.may_push, by, now_ms)
    audit_row = AuditRow(now_ms, "", AUDIT_KIND, app, "", f"{row.digest[:DIGEST_CHARS_SHOWN]}, {_may(row)}", "made", by)
    store.pushes.add_token(row, audit_row)
    return token


def find_token(beginning: str, store: Store) -> PushTokenRow:
    """Returns the token whose digest begins so. Raises ConfigError if there is none, or more than one."""
    found = [row for row in store.pushes.tokens() if beginning and row.digest.startswith(beginning)]
    if len(found) != 1:
        raise ConfigError("switch.not-one-token", count=len(found), beginning=beginning)
    return found[0]


def revoke(row: PushTokenRow, store: Store, *, by: str) -> bool:
    """Revokes the token; servers refuse the token within a second. Returns False if the token was already invalid."""
    audit_row = AuditRow(
        wall_ms(), "", AUDIT_KIND, row.app, f"{row.digest[:DIGEST_CHARS_SHOWN]}, {_may(row)}", "", "revoked", by
    )
    return store.pushes.revoke(row.digest, audit_row)


def read_tokens(store: Store) -> list[dict[str, Any]]:
    return [
        {
            "app": row.app,
            "token": row.digest[:DIGEST_CHARS_SHOWN],
            "may": _may(row),
            "made_by": row.made_by,
            "made_ms": row.made_ms,
        }
        for row in store.pushes.tokens()
    ]


def _may(row: PushTokenRow) -> str:
    return "may push" if row.may_push else "may ask"
