"""Run as a script between the lab and a server: ties the server's life to its parent's, drops rights, becomes it.

Done here and not in a preexec_fn, which may deadlock in a process that has threads. Uses the standard library alone.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """arguments: parent's pid (0: outlive it), signal at its death, user id (-1: keep), then the command."""
    parent, death_signal, user_id = (int(argument) for argument in arguments[:3])
    command = arguments[3:]
    if user_id >= 0:
        os.setgroups([])
        os.setgid(user_id)
        os.setuid(user_id)
    # After setuid, which would clear it.
    if parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
