"""What links changed on their targets besides records."""

from __future__ import annotations

from collections.abc import Sequence

from twinshore.fleet.settings import Settings
from twinshore.store import AuditRow, Store


def changes(links: Sequence[str], settings: Settings, store: Store, *, last: int) -> tuple[AuditRow, ...]:
    """The newest of these links together, or of all links of the settings; newest first."""
    return store.audit.rows(*(one.name for one in settings.chosen(links)), limit=last)
