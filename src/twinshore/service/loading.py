"""What a process of ours is not to load."""

from __future__ import annotations

import sys


def without_test_tools() -> None:
    """The library of Kafka's schemas makes its types known to hypothesis wherever that is installed. That takes longer
    than all else that it does, and writes a folder `.hypothesis` where the command is typed. Where hypothesis cannot be
    loaded, it goes without."""
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
