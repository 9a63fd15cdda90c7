"""The section `safety`: what Twinshore must never do on a cluster, regardless of other settings."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """What is never deleted, or only on an operator's order; see docs/deletes.md."""

    never_delete: bool = setting(
        False,
        "no link deletes a twin or truncates its log, whatever `deleted`, `recreated` or an operator's command"
        " say; records that the source's retention deletes stay on its twins",
    )
    deletions_at_once_max: int = setting(
        5,
        "if a policy would delete more twins of a link than this at once, or all topics of a link with several,"
        " each deletion waits for an operator's confirmation",
        low=1,
        high=1_000_000,
    )


def read_safety(raw: RawSection, complaints: Complaints) -> SafetySettings:
    return read_section(SafetySettings, raw.raw, raw.place, complaints) or SafetySettings()


SECTION = Section("safety", 70, (("[safety]", SafetySettings),), read_safety, overridden=True)
