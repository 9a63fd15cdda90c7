"""`twinshore switch rescue`: records that fail-backs have saved."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli.app import JSON, SETTINGS, confirm_and_run, get_operator_name, load_cli_settings, print_result
from twinshore.config.sentences import escape_line

FOLDER = typer.Option(
    None, "--folder", help="Where rescued records are kept; without it `rescued` beside the settings."
)
FILE = typer.Argument(..., help="A file of rescued records.", metavar="FILE")
FILES = typer.Argument(..., help="Files of rescued records.", metavar="FILE...")
TO_TOPIC = typer.Option(
    "", "--to", help="The topic that takes the records, where it is at home; without it the topic where they lay."
)
UNCOMMITTED = typer.Option(False, "--uncommitted", help="Those too that no transaction committed.")
LIMIT = typer.Option(10, "--limit", help="How many records are shown.")
YES = typer.Option(False, "--yes", help="Do not ask.")
DRY_RUN = typer.Option(False, "--dry-run", help="Only say what would be done.")


def verbs() -> typer.Typer:
    found = typer.Typer(help="What fail-backs have saved.", no_args_is_help=True)
    found.command("list")(list_files)
    found.command("export")(export)
    found.command("show")(show)
    found.command("reinject")(reinject)
    return found


def list_files(settings: Path = SETTINGS, folder: Path = FOLDER, json_output: bool = JSON) -> None:
    """Lists rescued records: where they lay, and how many they are. Clusters keep them; files are exported."""
    from twinshore.switch.operations.rescued import add_replayed_records, list_kept_rescues, list_rescued_files
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    where = rescue_folder(loaded, folder)
    found, odd = list_rescued_files(where)
    found, unknown = add_replayed_records(found, loaded)
    there, silent = list_kept_rescues(loaded)
    exported = {one.origin for one in found}
    there = [one for one in there if one.origin not in exported]
    values = [one.as_values() for one in found] + [one.as_values() for one in there]
    lines = [one.sentence() for one in found] + [one.sentence() for one in there]
    print_result(values, lines, as_json=json_output, none="" if odd else "nothing was rescued")
    for line in (*odd, *unknown, *silent):
        typer.echo(escape_line(line), err=True)


def export(settings: Path = SETTINGS, folder: Path = FOLDER) -> None:
    """Writes a file of each rescued tail that clusters keep and the folder lacks."""
    from twinshore.switch.operations.rescued import export_missing, list_kept_rescues
    from twinshore.switch.operations.returning import rescue_folder

    loaded = load_cli_settings(settings)
    there, silent = list_kept_rescues(loaded)
    for path in export_missing(loaded, rescue_folder(loaded, folder), there):
        typer.echo(str(path))
    for line in silent:
        typer.echo(escape_line(line), err=True)


def show(file: Path = FILE, limit: int = LIMIT, json_output: bool = JSON) -> None:
    """Shows what a file of rescued records holds, and the first of them."""
    from twinshore.switch.operations.rescued import describe_record, inspect_rescued_file, read_first_records

    found, some = inspect_rescued_file(file), read_first_records(file, limit)
    print_result(found.as_values(), [found.sentence(), *map(describe_record, some)], as_json=json_output)


def reinject(
    files: list[Path] = FILES,
    to: str = TO_TOPIC,
    uncommitted: bool = UNCOMMITTED,
    settings: Path = SETTINGS,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
) -> None:
    """Writes the records of files to their topics, or to one, each once, however often it is asked for.

    Keys, values, headers and timestamps are kept; the header `twinshore-rescued` says where a record lay before.
    """
    from twinshore.state.opening import open_existing
    from twinshore.switch.operations.rescued import ReplayRequest, replay_records
    from twinshore.switch.operations.rescued import plan as plan_reinject

    loaded = load_cli_settings(settings)
    with open_existing(loaded) as store:
        planned = plan_reinject(ReplayRequest(files, to, uncommitted), loaded, store)
        confirm_and_run(
            planned, replay_records(planned, loaded, store, by=get_operator_name()), yes=yes, dry_run=dry_run
        )
