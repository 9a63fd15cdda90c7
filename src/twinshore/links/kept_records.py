"""Records of switches that were made while the store was dead: what the store takes up of them. Pure.

Such a record stands on the new home of the topics, and is the truth until a process with a store goes on with the
switch: from then on the store's row says that no cluster keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from twinshore.homes.home_lines import HEX_ID, YEAR_9999_MS
from twinshore.store.switch_values import SwitchRow

# A cluster keeps records of forced switches alone, and of what else it says nothing is taken up.
KIND = "forced"
ENDED = ("done", "turned back")
STATES = (*ENDED, "going on", "turning back")
Records = Mapping[str, Mapping[str, Any] | None]


def to_take_up(records: Records, known: Iterable[SwitchRow], now_ms: int) -> list[SwitchRow]:
    """Rows that the store shall have: switches that it does not know, or not as they are by now."""
    rows = {row.id: row for row in known}
    found = (_row(switch, record, now_ms) for switch, record in records.items() if record is not None)
    return [row for row in found if row is not None and _is_news(row, rows.get(row.id))]


def spent(records: Records, known: Iterable[SwitchRow]) -> list[str]:
    """Switches whose record on the cluster nobody needs any more: the store knows it as well as it is, or better."""
    rows = {row.id: row for row in known}

    def is_spent(row: SwitchRow | None, record: Mapping[str, Any] | None) -> bool:
        if row is None or record is None:
            return False
        return not is_kept(row) or (_over(record) and row.record == _text(record))

    return [switch for switch, record in records.items() if is_spent(rows.get(switch), record)]


def _row(switch: str, record: Mapping[str, Any], now_ms: int) -> SwitchRow | None:
    """None where it is no record of a switch, as far as that can be told here."""
    match record:
        case {
            "id": str(own),
            "kind": str(kind),
            "old": str(old),
            "new": str(new),
            "state": str(state),
            "by": str(by),
            "begun_ms": int(begun_ms),
            "kept": str(kept),
        } if own == switch and HEX_ID.fullmatch(own) and kept and 0 <= begun_ms < YEAR_9999_MS:
            if kind != KIND or state not in STATES:
                return None
            if not all(_fits(text, most) for text, most in ((old, 64), (new, 64), (by, 255))):
                return None
            ended_ms = now_ms if state in ENDED else None
            return SwitchRow(own, kind, old, new, state, _text(record), by, begun_ms, now_ms, ended_ms)
        case _:
            return None


def _is_news(row: SwitchRow, before: SwitchRow | None) -> bool:
    return before is None or (is_kept(before) and before.record != row.record)


def is_kept(row: SwitchRow) -> bool:
    """Whether a cluster keeps the record."""
    try:
        found = json.loads(row.record)
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found.get("kept"))


def _over(record: Mapping[str, Any]) -> bool:
    """Whether no process without a store has anything left to do."""
    return record.get("state") in ENDED or record.get("awaits_store") is True


def _fits(text: str, chars_max: int) -> bool:
    return len(text) <= chars_max and text.isprintable()


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"), sort_keys=True)
