"""The texts of errors that an operator meets, by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`. Codes are public: programs compare them, so a code keeps its meaning.
"""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """What happened and where; and what to do."""

    text: str
    hint: str = ""


MESSAGES = {
    # kafka
    # routing
    # client
    # state
    # runtime
    "runtime.lease-taken": Message("{thing} is being worked on by another process: {holder}"),
    # replication
    # groups
    # proof
    # switch
    "switch.push-changed": Message(
        "{app}: another process has pushed since this push was planned", "plan the push again"
    ),
    # proxy
    # monitoring
    # advisor
    # lab
    # cli
}
