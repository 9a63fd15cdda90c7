"""`python -m twinshore.proxy` is one of several processes; see `part`."""

from __future__ import annotations

from twinshore.proxy.server import main

if __name__ == "__main__":
    main()
