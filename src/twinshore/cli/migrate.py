"""`twinshore migrate`: from another mirror's settings to Twinshore's."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import write_text_file

if TYPE_CHECKING:
    from twinshore.config.import_mirrormaker import Proposal

FILE = typer.Argument(
    help="Properties of connect-mirror-maker.sh, or JSON of its connectors in Connect; `-` reads standard input."
)
OUTPUT = typer.Option(None, "--output", help="Write the proposal to this new file.")


def register(app: typer.Typer) -> None:
    migrate = typer.Typer(help="Migrate from another mirror.", no_args_is_help=True)
    migrate.callback()(lambda: None)
    migrate.command("mm2")(mm2)
    app.add_typer(migrate, name="migrate")


def mm2(file: Path = FILE, output: Path | None = OUTPUT, json_output: bool = options.JSON) -> None:
    """Reads MirrorMaker 2's settings, proposes the same links, and shows what each property became.

    Asks no cluster and changes nothing. Copies no password: the proposal names where to put each.
    """
    from twinshore.config.import_mirrormaker import propose
    from twinshore.config.settings import read_text_file

    proposal = propose(read_text_file(file), "standard input" if str(file) == "-" else file.name)
    if output is not None:
        write_text_file(output, proposal.text, replaces=False)
    if json_output:
        typer.echo(json.dumps(asdict(proposal), indent=2))
        return
    if output is None:
        typer.echo(proposal.text)
    for line in _report(proposal):
        # Only the proposal goes to stdout.
        typer.echo(line, err=output is None)
    if output is not None:
        typer.echo(f"wrote {output}")


def _report(proposal: Proposal) -> list[str]:
    return [
        f"links: {', '.join(proposal.links)}",
        *(f"{finding.fate}: {finding.key} ({finding.place}): {finding.sentence}" for finding in proposal.findings),
        *(f"to do: {step}" for step in proposal.steps),
    ]
