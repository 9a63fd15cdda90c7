"""The section `switch`: commands that run before and after topics or a group move, such as a gateway's."""

from __future__ import annotations

from dataclasses import dataclass

from twinshore.config.declaration import setting
from twinshore.config.schema import Complaints, RawSection, Section, read_section

COMMAND_S_MAX = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchSettings:
    """Commands that a switch runs; see docs/switch.md."""

    before: tuple[str, ...] = setting(
        (),
        "program and arguments, run without a shell before writers are paused; if it fails, the switch rolls"
        " back. Empty: none",
    )
    after: tuple[str, ...] = setting(
        (),
        "program and arguments, run once writers or the group continue, also if the switch rolled back after `before`",
    )
    timeout_s: float = setting(30.0, "timeout of these programs", low=0.1, high=COMMAND_S_MAX)


def read_switch(raw: RawSection, complaints: Complaints) -> SwitchSettings:
    found = read_section(SwitchSettings, raw.raw, raw.place, complaints) or SwitchSettings()
    for name, command in (("before", found.before), ("after", found.after)):
        if command and not command[0].startswith("/"):
            complaints.add(raw.place, f"{name}: {command[0]!r} is not the full path of a program")
    return found


SECTION = Section("switch", 75, (("[switch]", SwitchSettings),), read_switch)
