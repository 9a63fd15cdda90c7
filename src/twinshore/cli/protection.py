"""`twinshore protection`: which topics are acknowledged by both sides."""

from __future__ import annotations

from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import any_store, existing_store, get_operator_name, load_cli_settings, print_result, run_steps

SECONDS_MAX = 86_400.0
TOPICS = typer.Argument(None, help="Topics, or regular expressions for whole topic names.")
TOPIC = typer.Argument(help="The topic.")
READ = typer.Option(
    None, "--read", help="home, as at first: consumers read all that the home has. both: only what home and twin have."
)
FROM_SETTINGS = typer.Option(False, "--as-settings", help="Take levels from the settings file, for all that it names.")
EVEN_WEAK = typer.Option(False, "--even-weak", help="Also if the loss of one broker may lose records of the twin.")


def register(app: typer.Typer) -> None:
    protection = typer.Typer(help="Have topics acknowledged by both sides.", no_args_is_help=True)
    protection.command("set")(set_level)
    options.add_verbs(protection, show, explain)
    app.add_typer(protection, name="protection")


def set_level(
    topics: list[str] | None = TOPICS,
    level: str = typer.Option("", "--level", help="async, sync or strict."),
    alone_after: float | None = typer.Option(
        None,
        "--alone-after",
        min=3.0,
        max=SECONDS_MAX,
        help="sync: seconds to wait for the twin before the home alone acknowledges; at first 5.",
    ),
    loss_at_most: float | None = typer.Option(
        None,
        "--loss-at-most",
        min=0.0,
        max=SECONDS_MAX,
        help="async: refuse writes while the twin is so many seconds behind; 0: never, as at first.",
    ),
    twin: str | None = typer.Option(None, "--twin", help="The cluster whose twin counts, if there are several."),
    read: str | None = READ,
    after_failover: str | None = typer.Option(
        None,
        "--after-failover",
        help="Until a forced switch's new home has a twin: it acknowledges `alone`, as at first, or writes `wait`.",
    ),
    as_settings: bool = FROM_SETTINGS,
    even_weak: bool = EVEN_WEAK,
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sets what an acknowledgement of the topics means, for clients of proxies.

    async: the home has the record. sync: home and twin have it; the home alone once the twin has been away for
    --alone-after and that is written down. strict: home and twin have it, else the write is refused. Options that
    are not given stay as they are.
    """
    from twinshore.replication.operations import protection

    request = protection.ProtectionRequest(
        tuple(topics or ()),
        protection.parse_level(level, as_settings=as_settings),
        alone_after,
        twin,
        protection.parse_after_failover(after_failover),
        loss_at_most,
        even_weak,
        protection.parse_read(read),
        as_settings,
    )
    with any_store(settings, creates=not dry_run, links=True) as (loaded, store):
        planned = protection.plan(request, loaded, store)
        run_steps(planned, protection.act(planned, loaded, store, by=get_operator_name()), dry_run=dry_run)


def show(
    topics: list[str] | None = TOPICS,
    as_settings: bool = typer.Option(False, "--as-settings", help="Print them as sections of a settings file."),
    settings: Path = options.SETTINGS,
    json_output: bool = options.JSON,
) -> None:
    """Shows what acknowledgements of topics mean now and since when, what waits, and which levels of the settings are
    not in force. Exit code 1: writes wait for a cluster that is away.
    """
    from twinshore.replication.operations.protection import show as read
    from twinshore.replication.operations.protection import unmet_sections

    loaded = load_cli_settings(settings)
    found, unmet = read(topics or (), loaded), [] if topics else list(unmet_sections(loaded))
    lines = list(found.as_settings()) if as_settings else [one.sentence() for one in found.topics]
    lines += [f"# {name} does not answer: {error}" for name, error in found.away]
    lines += [f"# {one}" for one in unmet]
    print_result(
        {**found.as_values(), "not_in_force": unmet}, lines, as_json=json_output, none="# no topic has a protection"
    )
    if any(one.waits for one in found.topics):
        raise typer.Exit(1)


def explain(topic: str = TOPIC, settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Says why writes to a protected topic wait, which clients mix topics, and what a forced switch would lose now."""
    from twinshore.replication.operations.protection import explain as read

    with existing_store(settings) as (loaded, store):
        found = read(topic, loaded, store)
    print_result(found.as_values(), found.lines(), as_json=json_output)
