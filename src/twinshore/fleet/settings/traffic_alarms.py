"""Tables `[proxy.alarms.NAME]`: what is to be told of what goes through a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twinshore.fleet.settings.declaring import setting
from twinshore.fleet.settings.edge import Complaints, did_you_mean, read_section

KINDS = ("produce", "fetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSection:
    """It stands once what goes through this proxy is above or below one of its bounds without a break, and ends once
    all is well for longer; see docs/conduct.md. A bound of 0 is none."""

    topic: str = setting("*", "topic; with a `*` behind, all that begin so, taken together")
    client: str = setting("*", "client id; with a `*` behind, all that begin so")
    kind: str = setting("produce", "`produce` or `fetch`")
    above_bytes_s: int = setting(0, "more bytes a second", low=0)
    below_bytes_s: int = setting(0, "fewer bytes a second", low=0)
    above_records_s: int = setting(0, "more records a second, of producers", low=0)
    below_records_s: int = setting(0, "fewer records a second, of producers", low=0)
    latency_ms: int = setting(0, "99 of 100 answers to producers take longer", low=0)
    for_s: int = setting(30, "for how long it must be so", low=1)
    quiet_s: int = setting(60, "for how long all must be well: upper bounds passed by half at most", low=1)

    @property
    def bounds(self) -> tuple[int, ...]:
        """All of them."""
        above = (self.above_bytes_s, self.above_records_s, self.latency_ms)
        return (*above, self.below_bytes_s, self.below_records_s)


def read_alarms(table: object, place: str, complaints: Complaints) -> tuple[tuple[str, AlarmSection], ...]:
    """By their names, as written."""
    if not isinstance(table, Mapping):
        complaints.add(place, f"alarms: must be tables [proxy.alarms.NAME], not {table!r}")
        return ()
    found = []
    for name, raw in table.items():
        where = f"[proxy.alarms.{name}]"
        section = read_section(AlarmSection, raw, where, complaints)
        if section is None:
            continue
        if section.kind not in KINDS:
            complaints.add(where, f"kind: no such kind {section.kind!r}{did_you_mean(section.kind, KINDS)}")
        if not any(section.bounds):
            complaints.add(where, "needs a bound, such as above_bytes_s")
        if section.kind == "fetch" and (section.above_records_s or section.below_records_s or section.latency_ms):
            complaints.add(where, "kind: what consumers read is measured in bytes alone")
        found.append((str(name), section))
    return tuple(found)
