"""The texts of errors that concern clusters, the store, reports, the lab and the command line."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """What happened and where; and what to do."""

    text: str
    hint: str = ""


CLUSTER_MESSAGES = {
    # config
    # kafka
    # routing
    # state
    # runtime
    "runtime.lease-taken": Message("{thing} is being worked on by another process: {holder}"),
    # groups
    # proof
    # monitoring
    # advisor
    # lab
    # cli
}
