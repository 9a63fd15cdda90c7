"""`twinshore switch rescue`: records that fail-backs have saved."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import confirm_and_run, get_operator_name, load_cli_settings, print_result
from twinshore.config.sentences import escape_line

FILE = typer.Argument(..., help="A file of rescued records.", metavar="FILE")
FILES = typer.Argument(..., help="Files of rescued records, or their names in the folder.", metavar="FILE...")
TO_TOPIC = typer.Option("", "--to", help="Write to this topic, at its home; default: the original topic.")
UNCOMMITTED = typer.Option(False, "--uncommitted", help="Also records of transactions that did not commit.")
LIMIT = typer.Option(10, "--limit", help="Number of records to show.")


def verbs() -> typer.Typer:
    found = typer.Typer(help="Records that fail-backs saved.", no_args_is_help=True)
    found.command("list")(list_files)
    found.command("export")(export)
    found.command("show")(show)
    found.command("reinject")(reinject)
    return found


def list_files(
    settings: Path = options.SETTINGS, folder: Path = options.RESCUE_FOLDER, json_output: bool = options.JSON
) -> None:
    """Lists rescued records: where they were, and how many. Clusters keep them; `export` writes files."""
    from twinshore.switch.operations.rescued import add_replayed_records, list_kept_rescues, list_rescued_files
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    where = rescue_folder(loaded, folder)
    found, odd = list_rescued_files(where)
    found, unknown = add_replayed_records(found, loaded)
    there, silent = list_kept_rescues(loaded)
    exported = {file.origin for file in found}
    there = [rescue for rescue in there if rescue.origin not in exported]
    values = [file.as_values() for file in found] + [rescue.as_values() for rescue in there]
    lines = [file.sentence() for file in found] + [rescue.sentence() for rescue in there]
    print_result(values, lines, as_json=json_output, none="" if odd else "nothing was rescued")
    for line in (*odd, *unknown, *silent):
        typer.echo(escape_line(line), err=True)


def export(settings: Path = options.SETTINGS, folder: Path = options.RESCUE_FOLDER) -> None:
    """Writes the rescued records that clusters keep and the folder lacks to files."""
    from twinshore.switch.operations.rescued import export_missing, list_kept_rescues
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    there, silent = list_kept_rescues(loaded)
    for path in export_missing(loaded, rescue_folder(loaded, folder), there):
        typer.echo(str(path))
    for line in silent:
        typer.echo(escape_line(line), err=True)


def show(file: Path = FILE, limit: int = LIMIT, json_output: bool = options.JSON) -> None:
    """Shows a file of rescued records: a summary, and the first records."""
    from twinshore.switch.operations.rescued import describe_record, inspect_rescued_file, read_first_records

    found, records = inspect_rescued_file(file), read_first_records(file, limit)
    print_result(found.as_values(), [found.sentence(), *map(describe_record, records)], as_json=json_output)


def reinject(
    files: list[Path] = FILES,
    to: str = TO_TOPIC,
    uncommitted: bool = UNCOMMITTED,
    settings: Path = options.SETTINGS,
    folder: Path = options.RESCUE_FOLDER,
    yes: bool = options.YES,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Writes rescued records from files to their topics, or to one topic. Writes each record once, even if repeated.

    Keeps keys, values, headers and timestamps; the header `twinshore-rescued` gives the original partition and offset.
    """
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.rescued import ReplayRequest, replay_records
    from twinshore.switch.operations.rescued import plan as plan_reinject
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    where = rescue_folder(loaded, folder)
    # A bare name is one of the folder, where the folder has it.
    files = [where / file if not file.parent.name and (where / file).exists() else file for file in files]
    with open_existing(loaded) as store:
        plan = plan_reinject(ReplayRequest(files, to, uncommitted), loaded, store)
        confirm_and_run(plan, replay_records(plan, loaded, store, by=get_operator_name()), yes=yes, dry_run=dry_run)
