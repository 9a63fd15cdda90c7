"""`twinshore simulate`: how a Kafka partition loses a record, as a story or by a search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from twinshore.cli import options
from twinshore.cli.app import load_cli_settings, print_result, write_text_file

NAME = typer.Argument("", help="The story; default: list all.")
RECORDS = typer.Option(2, "--records", help="Records to send; more take much longer.")
FLUSH = typer.Option("never", "--flush", help="Flush to disk: never (before a power failure), each (record, at once).")
IDEMPOTENCE = typer.Option(
    None, "--idempotence/--no-idempotence", help="Default: on with acks=all and retries, as in clients."
)
RETRIES = typer.Option(True, "--retries/--no-retries", help="Whether the producer retries unacknowledged records.")
IN_FLIGHT = typer.Option(
    True, "--in-flight/--one-in-flight", help="Whether it sends the next record before the last is acknowledged."
)
COMMIT = typer.Option(
    "none",
    "--commit",
    help="When a consumer commits: auto, before or after processing, together (with the result), none (no consumer).",
)
RESET = typer.Option("none", "--reset", help="Its auto.offset.reset: earliest, latest; none: its offset is never lost.")
FAULT = typer.Option(
    [], "--fault", help="Only these faults: crash, power, cut, slow, answer, reader, rest, retention; repeatable."
)
FAULTS = typer.Option(2, "--faults", help="Maximum number of faults.")
HTML = typer.Option(None, "--html", help="Also write an HTML page to this file, to step through by keyboard.")
STATES = typer.Option(
    200_000, "--states", min=1, help="Maximum number of states to explore; it keeps at most ten times as many."
)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Simulates how a Kafka partition keeps or loses a record.", no_args_is_help=True)
    options.add_verbs(group, story, explore, topic)
    app.add_typer(group, name="simulate")


def story(name: str = NAME, html: Path | None = HTML, json_output: bool = options.JSON) -> None:
    """Plays a classic data loss, or its fix, step by step; lists all without a name. Asks no cluster.

    --html writes the named story, or all.
    """
    from twinshore.advisor.core.simulator import explore

    if html is not None:
        write_text_file(html, explore.render_stories([explore.find_story(name)] if name else explore.get_all_stories()))
    if not name:
        print_result(explore.list_story_values(), explore.list_stories(), as_json=json_output)
        return
    found = explore.find_story(name)
    print_result(explore.story_as_values(found), explore.describe_story(found), as_json=json_output)


def explore(
    replicas: int = typer.Option(3, "--replicas", help="Replicas of the partition."),
    records: int = RECORDS,
    acks: str = typer.Option("all", "--acks", help="The producer's acks: 0, 1, all."),
    min_insync: int = typer.Option(1, "--min-insync", help="The topic's min.insync.replicas."),
    unclean: bool = typer.Option(False, "--unclean/--clean", help="Unclean leader election."),
    flush: str = FLUSH,
    truncation: str = typer.Option(
        "epoch", "--truncation", help="How followers truncate logs: epoch, or high-watermark (before KIP-101)."
    ),
    elr: bool = typer.Option(False, "--elr/--no-elr", help="Eligible leader replicas (KIP-966)."),
    idempotence: bool | None = IDEMPOTENCE,
    retries: bool = RETRIES,
    in_flight: bool = IN_FLIGHT,
    commit: str = COMMIT,
    reset: str = RESET,
    fault: list[str] = FAULT,
    harm: list[str] = typer.Option([], "--harm", help="Only this harm: lost, twice, reordered; repeatable."),
    faults: int = FAULTS,
    states: int = STATES,
    away: int = typer.Option(0, "--away", help="Replicas that are down and out of sync at the start."),
    html: Path | None = HTML,
    json_output: bool = options.JSON,
) -> None:
    """Finds the fewest faults that lose, duplicate or reorder an acknowledged record. Asks no cluster.

    Exit code 0: none within the limits; 1: found, and shown; 2: more states than --states.
    """
    from twinshore.advisor.core.simulator import explore as simulator

    words = (flush, truncation, elr, idempotence, retries, in_flight, commit, tuple(fault), tuple(harm), faults, states)
    request = simulator.ExplorationRequest(replicas, records, acks, min_insync, unclean, *words, away, reset)
    found = simulator.run_exploration(request)
    if html is not None:
        write_text_file(html, simulator.render_exploration(found))
    print_result(simulator.exploration_as_values(found), simulator.sentences_of(found), as_json=json_output)
    raise typer.Exit(simulator.exit_code(found))


def topic(
    name: str = typer.Argument(help="The topic."),
    settings: Path = options.SETTINGS,
    cluster: str = options.CLUSTER,
    acks: str = typer.Option("", "--acks", help="The producer's acks: 0, 1, all; default: each of them."),
    idempotence: bool | None = IDEMPOTENCE,
    retries: bool = RETRIES,
    in_flight: bool = IN_FLIGHT,
    commit: str = COMMIT,
    reset: str = RESET,
    records: int = RECORDS,
    fault: list[str] = FAULT,
    faults: int = FAULTS,
    states: int = STATES,
    html: Path | None = HTML,
    json_output: bool = options.JSON,
) -> None:
    """Reads a live topic's settings and finds the fewest faults that lose an acknowledged record, step by step.

    Exit code 0: none within the limits; 1: found; 2: more states than --states.
    """
    from twinshore.advisor.core.simulator.explore import ExplorationRequest
    from twinshore.advisor.operations import settings_advice

    request = ExplorationRequest(
        records=records, acks=acks, idempotent=idempotence, retries=retries, in_flight=in_flight, reset=reset
    )
    request = replace(request, commit=commit, kinds=tuple(fault), faults_max=faults, states_max=states)
    found = settings_advice.find_losses(cluster, name, request, load_cli_settings(settings))
    if html is not None:
        write_text_file(html, settings_advice.render_losses(found))
    print_result(settings_advice.losses_as_values(found), settings_advice.describe_losses(found), as_json=json_output)
    raise typer.Exit(settings_advice.exit_code(found))
