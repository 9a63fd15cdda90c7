"""`python -m twinshore.proxy` runs one of several worker processes; see `server`."""

from __future__ import annotations

from twinshore.proxy.server import main

if __name__ == "__main__":
    main()
