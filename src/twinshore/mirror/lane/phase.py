"""The phases that a partition on its way is in.

    look -> looking -> running -> settling -> look ...        any -> stopped

`settling` waits for answers still on their way after one was wrong; only then is the twin looked at again.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    LOOK = "look"
    LOOKING = "looking"
    RUNNING = "running"
    SETTLING = "settling"
    STOPPED = "stopped"
