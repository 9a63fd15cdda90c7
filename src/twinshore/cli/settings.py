"""`twinshore settings`: what is in force and why; and settings that running processes obey without a restart."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from twinshore.cli import options
from twinshore.cli.app import any_store, get_operator_name, print_lines, print_result, run_steps

if TYPE_CHECKING:
    from twinshore.config.model import Plan
    from twinshore.runtime.live_settings import SettingStep

KEY = typer.Argument(help='As in `proxy.new_topics`, or `proxy.new_topics_by_name."billing-*"`.', metavar="KEY")
PREFIX = typer.Argument("", help="Only keys that begin so.", metavar="[PREFIX]")


def register(app: typer.Typer) -> None:
    settings = typer.Typer(help="What is in force; change it without a restart.", no_args_is_help=True)
    settings.command("show")(show)
    settings.command("set")(set_value)
    settings.command("unset")(unset)
    app.add_typer(settings, name="settings")


def show(prefix: str = PREFIX, settings: Path = options.SETTINGS, json_output: bool = options.JSON) -> None:
    """Shows each setting in force, and where it is from: default, file, environment, or store, with who and when.

    Secrets are hidden. `twinshore link list` shows links.
    """
    from twinshore.runtime.live_settings import list_settings

    with any_store(settings) as (loaded, store):
        found = list_settings(loaded, store, os.environ, prefix)
    values = [asdict(one) for one in found]
    print_result(values, (one.sentence() for one in found), as_json=json_output, none="none")


def set_value(
    key: str = KEY,
    value: str = typer.Argument(help="As in the settings file; text may stand without quotes.", metavar="VALUE"),
    settings: Path = options.SETTINGS,
    dry_run: bool = options.DRY_RUN,
) -> None:
    """Sets a value that counts before the settings file, in all running processes and without a restart.

    docs/settings.md marks the settings that are live.
    """
    from twinshore.runtime.live_settings import plan_set

    with any_store(settings, creates=not dry_run) as (loaded, store):
        run_change(plan_set(key, value, loaded, store, by=get_operator_name()), store, dry_run=dry_run)


def unset(key: str = KEY, settings: Path = options.SETTINGS, dry_run: bool = options.DRY_RUN) -> None:
    """Removes a value, so that the settings file counts again."""
    from twinshore.runtime.live_settings import plan_unset

    with any_store(settings) as (loaded, store):
        run_change(plan_unset(key, loaded, store), store, dry_run=dry_run)


def run_change(plan: Plan[SettingStep], store: Any, *, dry_run: bool) -> None:
    """Does the plan, and says which proxies go by it."""
    from twinshore.proxy.operations.breakers import wait_until_in_force
    from twinshore.runtime.live_settings import act

    run_steps(plan, act(plan, store, by=get_operator_name()), dry_run=dry_run)
    if not dry_run and not plan.steps[0].name.startswith("delay."):
        print_lines([wait_until_in_force(store)])
