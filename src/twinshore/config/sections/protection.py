"""The section `protection`: the protection of topics that have none yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, check_pattern, did_you_mean, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionSection:
    """What an acknowledgement of these topics means: a topic, or a regular expression for whole topic names. A topic's
    own name counts before the first expression that matches. A seed; see docs/protection.md.
    """

    level: Literal["async", "sync", "strict"] = setting(
        "sync", "`async`: the home has the record; `sync` and `strict`: home and twin have it"
    )
    alone_after_s: float = setting(
        5.0, "`sync`: seconds to wait for the twin before the home alone acknowledges", low=3, high=86_400
    )
    twin: str = setting("", "the cluster whose twin counts, if there are several")
    after_failover: Literal["alone", "wait"] = setting(
        "alone", "until a forced switch's new home has a twin: it acknowledges `alone`, or writes `wait`"
    )
    loss_at_most_s: float = setting(
        0.0, "`async`: refuse writes while the twin is so many seconds behind; 0: never", low=0, high=86_400
    )
    read: Literal["home", "both"] = setting(
        "home", "`home`: consumers read all that the home has; `both`: only what home and twin have"
    )


def read_protection(raw: RawSection, complaints: Complaints) -> dict[str, ProtectionSection]:
    """Sections by topic or expression, as written."""
    if not isinstance(raw.raw, Mapping):
        complaints.add(raw.place, 'must hold one section per topic, like [protection."payments.*"]')
        return {}
    found = {}
    for pattern, table in raw.raw.items():
        place = f'[protection."{pattern}"]'
        check_pattern(pattern, "its name", place, complaints)
        section = read_section(ProtectionSection, table, place, complaints)
        clusters = raw.before.get("clusters", {})
        if section is not None and section.twin not in ("", *clusters):
            complaints.add(place, f"twin: no cluster {section.twin!r}{did_you_mean(section.twin, clusters)}")
        if section is not None and (section.read, section.level) == ("both", "async"):
            complaints.add(place, "read: `both` needs the level sync or strict")
        if section is not None:
            found[pattern] = section
    return found


SECTION = Section("protection", 35, (('[protection."TOPIC"]', ProtectionSection),), read_protection)
