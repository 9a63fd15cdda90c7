"""twinshore status"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Adds the verb to the command; its room brings it in a later commit."""
    _ = app
