"""The launcher script: ties a server's life to its parent's, drops privileges, then execs.

A preexec_fn may deadlock in a process with threads. Uses only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Arguments: parent's pid (0: outlive the parent), signal at the parent's death, user id (-1: keep), then the
    command.
    """
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
