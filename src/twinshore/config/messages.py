"""The texts of errors that an operator meets, by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`. Codes are public: programs compare them, so a code keeps its meaning. The packages
that are not here are in `cluster_messages.py`.
"""

from __future__ import annotations

from twinshore.config.cluster_messages import CLUSTER_MESSAGES, Message

MESSAGES = {
    **CLUSTER_MESSAGES,
    # client
    # replication
    # switch
    "switch.push-changed": Message(
        "{app}: another process has pushed since this push was planned", "plan the push again"
    ),
    # proxy
}
