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
        "a program and its arguments, run before anybody is held; where it fails, the switch turns back. No shell reads"
        " it. Empty: none",
    )
    after: tuple[str, ...] = setting(
        (), "the same, run once writers or the group go on, also where the switch has turned back behind `before`"
    )
    timeout_s: float = setting(
        30.0, "after so long such a command is ended, and has failed", low=0.1, high=COMMAND_S_MAX
    )


def read_switch(written: RawSection, complaints: Complaints) -> SwitchSettings:
    found = read_section(SwitchSettings, written.raw, written.place, complaints) or SwitchSettings()
    for name, command in (("before", found.before), ("after", found.after)):
        if command and not command[0].startswith("/"):
            complaints.add(written.place, f"{name}: {command[0]!r} is not the full path of a program")
    return found


SECTION = Section("switch", 75, (("[switch]", SwitchSettings),), read_switch)
