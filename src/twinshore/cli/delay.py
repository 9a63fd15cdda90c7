"""`twinshore delay`: how far behind each link is, who watches, and open alarms; and the monitor itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import (
    build_table,
    existing_store,
    get_operator_name,
    load_cli_settings,
    open_console,
    print_result,
    run_steps,
    server_log,
)
from twinshore.kafka.clock import wall_ms

if TYPE_CHECKING:
    from twinshore.monitoring.operations import AlarmMark, TopicDelay

CRITICAL = 2
SILENCE_H_MAX = 7 * 24
NUMBER = typer.Argument(help="The alarm's number in `twinshore delay alarms`.")
TOPIC = typer.Option("", "--topic", help="Only this topic.")
TRIED = typer.Option(None, "--settings", help="Use this file's [delay]; default: the default values.")


def register(app: typer.Typer) -> None:
    delay = typer.Typer(invoke_without_command=True)
    delay.callback()(show)
    options.add_verbs(delay, watch, watch_watchers, forget, check, simulate)
    listed = typer.Typer(invoke_without_command=True)
    listed.callback()(alarms)
    options.add_verbs(listed, acknowledge, silence)
    delay.add_typer(listed, name="alarms")
    webhook = typer.Typer(help="The webhook that gets the alarms.")
    webhook.command("test")(webhook_test)
    delay.add_typer(webhook, name="webhook", no_args_is_help=True)
    app.add_typer(delay, name="delay")


def show(
    context: typer.Context,
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    topic: str = TOPIC,
    json_output: bool = options.JSON,
) -> None:
    """Shows how far behind each topic is, as a monitor last saw it, and the open alarms. Asks no cluster."""
    if context.invoked_subcommand:
        return
    from twinshore.monitoring.operations import read_delays

    with existing_store(settings, "monitoring.no-store") as (loaded, store):
        found = read_delays(link, topic, loaded, store, clock=wall_ms)
    if not json_output:
        _table(found.topics())
    print_result(found.as_values(), found.sentences(), as_json=json_output)


def watch(settings: Path = options.SETTINGS, link: list[str] = options.LINKS) -> None:
    """Monitors the links until stopped: samples both clusters, keeps the history and sends alarms. Works with any
    mirroring tool.
    """
    from twinshore.monitoring.monitor import Monitor

    loaded = load_cli_settings(settings)
    with server_log(loaded):
        Monitor(loaded, loaded.chosen(link)).run()


def watch_watchers(settings: Path = options.SETTINGS) -> None:
    """Checks, until stopped, that every monitor and mirror of the store is alive. Run it on another machine."""
    from twinshore.monitoring.watchers import Watcher

    loaded = load_cli_settings(settings)
    with server_log(loaded):
        Watcher(loaded).run()


def forget(
    name: str = typer.Argument(help="The name before the colon in `twinshore delay`."),
    settings: Path = options.SETTINGS,
) -> None:
    """Removes a monitor, or a watch-watchers, that will not come back, so that it raises no alarm."""
    from twinshore.monitoring.operations import ForgetWatcher, act, plan

    with existing_store(settings, "monitoring.no-store") as (_, store):
        planned = plan(ForgetWatcher(name), store)
        run_steps(planned, act(planned, store, by=get_operator_name()), dry_run=False)


def check(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    topic: str = TOPIC,
    item: str = typer.Option("", "--item", help="Print only this number: lag, recovery-point or alarms."),
    discovery: bool = typer.Option(False, "--discovery", help="Print Zabbix low-level discovery of links and topics."),
) -> None:
    """Checks once, for scripts, Nagios and Zabbix.

    Exit code 0: OK; 1: open alarms, or old or missing figures; 2: no monitor watches a link. With --topic it checks the
    alarms of that topic and of whole links. With --item it prints no number and exits with 2 if the figure is too old,
    or if no monitor would raise an alarm.
    """
    from twinshore.monitoring import operations as checks

    checks.check_item(item)
    with existing_store(settings, "monitoring.no-store") as (loaded, store):
        if discovery:
            typer.echo(checks.read_zabbix_discovery(link, loaded, store))
            return
        if item:
            found = checks.read_figure(item, link, topic, loaded, store, clock=wall_ms)
            if found.why:
                typer.echo(f"no {item}: {found.why}", err=True)
                raise typer.Exit(CRITICAL)
            typer.echo(f"{found.value:g}")
            return
        verdict = checks.check_links(link, topic, loaded, store, clock=wall_ms)
    typer.echo(str(verdict))
    raise typer.Exit(int(verdict.level))


def alarms(
    context: typer.Context,
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    limit: int = typer.Option(50, "--limit", help="Number of alarms.", min=1),
    json_output: bool = options.JSON,
) -> None:
    """Shows the history of alarms, newest first."""
    if context.invoked_subcommand:
        return
    from twinshore.monitoring.operations import describe_alarm_durations, read_alarm_history

    with existing_store(settings, "monitoring.no-store") as (loaded, store):
        rows = read_alarm_history(link, loaded, store, limit=limit)
        words = describe_alarm_durations(rows, loaded, store, clock=wall_ms)
    whens = [time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(row.raised_ms / 1000)) for row in rows]
    lines = [f"{when} #{row.id} {said}  {row.sentence}" for when, said, row in zip(whens, words, rows, strict=True)]
    none = f"no alarm {'of these links ' if link else ''}has ever risen"
    print_result([asdict(row) for row in rows], lines, as_json=json_output, none=none)


def acknowledge(
    number: int = NUMBER,
    reason: str = typer.Option("", "--reason", help="Why; shown with the alarm."),
    settings: Path = options.SETTINGS,
) -> None:
    """Acknowledges an open alarm: the monitor does not send it again, only what is new about it, and its end."""
    from twinshore.monitoring.operations import AlarmMark

    _mark(AlarmMark(number, reason), settings)


def silence(
    number: int = NUMBER,
    hours: float = typer.Option(..., "--hours", help="For so long; 0 ends a silence.", min=0, max=SILENCE_H_MAX),
    settings: Path = options.SETTINGS,
) -> None:
    """Silences an open alarm: nothing about it is sent, while it is still shown."""
    from twinshore.monitoring.operations import AlarmMark

    _mark(AlarmMark(number, hours=hours), settings)


def _mark(mark: AlarmMark, settings: Path) -> None:
    from twinshore.monitoring.operations import act_mark, plan_mark

    with existing_store(settings, "monitoring.no-store") as (_, store):
        planned = plan_mark(mark, store)
        run_steps(planned, act_mark(planned, store, by=get_operator_name()), dry_run=False)


def webhook_test(dry_run: bool = options.DRY_RUN, settings: Path = options.SETTINGS) -> None:
    """Sends one test event to the webhook, as the monitor sends alarms."""
    from twinshore.monitoring.operations import act_test, plan_test

    loaded = load_cli_settings(settings)
    planned = plan_test(loaded, get_operator_name())
    run_steps(planned, act_test(planned, loaded), dry_run=dry_run)


def simulate(
    settings: Path | None = TRIED,
    seed: int = typer.Option(1, "--seed", help="Seed of the simulated traffic."),
    hours: float = typer.Option(3.0, "--hours", help="Simulated hours without a fault.", min=0.1, max=1000),
    runs: int = typer.Option(10, "--runs", help="Runs of each fault.", min=1, max=10000),
) -> None:
    """Tests both algorithms on simulated traffic: time to detect each fault, and false alarms."""
    from twinshore.config.sections.delay import DelaySettings
    from twinshore.monitoring.delay_simulation import build_table

    typer.echo(build_table(seed, hours, runs, load_cli_settings(settings).delay if settings else DelaySettings()))


def _table(topics: Sequence[TopicDelay]) -> None:
    from rich.text import Text

    numbers = ("partitions", "source", "target", "lag", "behind s", "seen s ago")
    table = build_table(("link", "topic", "group"), numbers, folds=True)
    for delay in topics:
        about = "~" if delay.about else ""
        counts = [f"{count:,}" for count in (delay.partitions, delay.source_end, delay.target_end)]
        behind = [f"{about}{delay.lag_records:,}", f"{about}{delay.recovery_point_ms / 1000:.1f}"]
        if delay.unknown:
            behind = ["?", "?"]
        # Literally: brackets in a group's name are not markup.
        words = [delay.link, delay.topic, delay.group, *counts, *behind, f"{delay.seen_s:.0f}"]
        table.add_row(*(Text(word) for word in words))
    open_console().print(table)
