"""`twinshore prove`: do both sides of links hold the same records, through which offset, and where do they part."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli.early import Asked, heard
from twinshore.cli.looking import JSON, LINKS, SETTINGS, load
from twinshore.fleet import ConfigError, Link
from twinshore.fleet.lines import one_line
from twinshore.fleet.settings_edge import did_you_mean

if TYPE_CHECKING:
    from twinshore.fleet.settings import Settings
    from twinshore.fleet.settings_proof import ProofSettings
    from twinshore.proof.job import Run
    from twinshore.proof.planning import Wishes
    from twinshore.proof.proving import Proving, Report
    from twinshore.proof.values import Way
    from twinshore.store import Store

TOPICS = typer.Option([], "--topic", help="Only this topic of the source; may be given several times.")
AGAIN = typer.Option(False, "--again", help="From the beginning of the logs, not from where the last proof ended.")
SAMPLE = typer.Option(0.0, "--sample", min=0, max=1, help="Compare only this part of all offsets, as 0.05; 0: all.")
SEED = typer.Option(0, "--seed", min=0, help="Draw the sample that this number draws; 0: another each time.")
WAY = typer.Option("", "--way", help="How to compare: exact, extents, compacted or content; by itself if not given.")
THROTTLE = typer.Option(-1.0, "--throttle", help="MB/s read from both clusters together, instead of the settings'.")
DIGEST = typer.Option(True, "--digest/--no-digest", help="Make a digest of the records.")
CONTINUOUS = typer.Option(False, "--continuous", help="Go on, round after round, until stopped.")
EVERY = typer.Option(0.0, "--every", min=0, help="Pause between rounds in seconds, instead of the settings'.")
HERE = typer.Option(False, "--here", help="In this process, without Spark: sooner where there is little to compare.")
ALL = typer.Option(False, "--all", help="Name the identical partitions too, with offsets, records and digests.")
METRICS = typer.Option(0, "--metrics-port", min=0, max=65535, help="Serve /metrics and /health on this port.")


def register(app: typer.Typer) -> None:
    """Adds the verb to the command."""
    app.command("prove")(prove)


def prove(
    settings: Path = SETTINGS,
    link: list[str] = LINKS,
    topic: list[str] = TOPICS,
    again: bool = AGAIN,
    sample: float = SAMPLE,
    seed: int = SEED,
    way: str = WAY,
    throttle: float = THROTTLE,
    digest: bool = DIGEST,
    continuous: bool = CONTINUOUS,
    every: float = EVERY,
    here: bool = HERE,
    metrics_port: int = METRICS,
    everything: bool = ALL,
    json_output: bool = JSON,
) -> None:
    """Compares both sides of links record by record, through the lower of both ends, while traffic flows.

    The verdict comes first, then what differs. Exit code 0: identical; 1: not identical, and where; 2: cannot tell, as
    something could not be compared; 130 or 143: stopped by Ctrl-C or SIGTERM. Goes on from the last proof, of what both
    sides still hold.
    """
    from twinshore.store.opening import open_or_make

    with heard() as asked:
        loaded, how = load(settings), _way(way)
        drawn = seed or random.SystemRandom().randrange(1, 1_000_000)
        wishes = _wishes(loaded, sample, drawn, throttle, digest=digest, beside=continuous and not sample)
        links = _links(loaded, link)

        def tell(report: Report) -> None:
            whole = everything or bool(sample)
            _tell(report, loaded, as_json=json_output, everything=whole, drawn=drawn if sample else 0)

        with (
            open_or_make(loaded) as store,
            _served(metrics_port, store) as beat,
            runner(loaded, here=here, asked=asked) as run,
        ):
            from twinshore.proof.proving import Proving

            def stopped() -> bool:
                beat()
                return asked.stop.is_set()

            tasks = loaded.proof.tasks
            proving = Proving(loaded, store, run, wishes=wishes, tasks=tasks, way=how, stopped=stopped, log=_log)
            if continuous:
                with _again(proving, loaded, store, run, wishes) as between:
                    one_round = partial(proving.round, links, topic)
                    pause_s = every or loaded.proof.every_s
                    raise typer.Exit(_keep_proving(one_round, tell, pause_s, stopped, between))
            raise typer.Exit(_once(proving, links, topic, tell, asked, again=again))


def _keep_proving(
    one_round: Callable[[], Report],
    tell: Callable[[Report], None],
    pause_s: float,
    stopped: Callable[[], bool],
    between: Callable[[], None],
) -> int:
    from twinshore.proof.continuous import keep_proving

    return keep_proving(one_round, tell, pause_s, stopped, _log, between)


def _once(
    proving: Proving, links: list[Link], topics: list[str], tell: Callable[[Report], None], asked: Asked, *, again: bool
) -> int:
    """What was proven until somebody stopped it is told all the same."""
    from twinshore.proof.telling import exit_code

    report = proving.round(links, topics, again=again)
    tell(report)
    return asked.exit_code if asked.stop.is_set() else exit_code(report)


def _wishes(loaded: Settings, sample: float, seed: int, throttle: float, *, digest: bool, beside: bool) -> Wishes:
    """`beside`: something is read again at the same time."""
    from dataclasses import replace

    from twinshore.fleet.settings_proof import overdrawn
    from twinshore.proof.continuous import wishes_beside, wishes_of

    section = throttled(loaded.proof, throttle)
    if beside and (refused := overdrawn(section)):
        raise ConfigError(f"--throttle: {refused}")
    wishes = (wishes_beside if beside else wishes_of)(section)
    return replace(wishes, sample=sample, seed=seed, digest=wishes.digest and digest)


def throttled(section: ProofSettings, throttle: float) -> ProofSettings:
    """The settings with what the flag says instead; below 0 it says nothing."""
    from dataclasses import replace

    return replace(section, throttle_mb_s=throttle) if throttle >= 0 else section


@contextlib.contextmanager
def _again(proving: Proving, loaded: Settings, store: Store, run: Run, wishes: Wishes) -> Iterator[Callable[[], None]]:
    """What reads again what was proven, to be called between rounds."""
    from twinshore.proof.rereading import Rereading

    again = Rereading(loaded, store, run, wishes, sides=proving.seen, keep=proving.keep, log=_log)
    try:
        yield (lambda: None) if wishes.sample else again.turn
    finally:
        again.close()


def _links(loaded: Settings, names: list[str]) -> list[Link]:
    links = loaded.chosen(names)
    if not links:
        raise ConfigError("no link to prove", hint='name one in the settings: [links."east->west"]')
    return links


def _way(name: str) -> Way | None:
    from twinshore.proof.values import Way

    if not name:
        return None
    if name not in list(Way):
        raise ConfigError(f"--way: there is no way {name!r}{did_you_mean(name, [one.value for one in Way])}")
    return Way(name)


def _tell(report: Report, loaded: Settings, *, as_json: bool, everything: bool, drawn: int) -> None:
    from twinshore.proof import again
    from twinshore.proof.telling import as_values, in_words

    rows, bytes_s = [one.row for one in report.partitions], loaded.proof.reread_mb_s * 1e6
    if as_json:
        found = again.whole_pass(rows, bytes_s)
        values = as_values(report) | {"pass": found._asdict() if found else None}
        typer.echo(json.dumps(values | ({"seed": drawn} if drawn else {})))
        return
    for line in in_words(report, everything=everything):
        typer.echo(line)
    for line in again.in_words(rows, bytes_s, loaded.proof.read_again_h, int(time.time() * 1000)):
        typer.echo(line)
    if drawn:
        typer.echo(f"the same sample again: --seed {drawn}")


@contextlib.contextmanager
def runner(loaded: Settings, *, here: bool, asked: Asked) -> Iterator[Run]:
    """What runs bundles of stretches: Spark, or this process."""
    from twinshore.proof.job import in_this_process, on_spark

    if here:
        yield in_this_process
        return
    from twinshore.mirror.spark import open_session

    _log(f"starting Spark on {loaded.mirror.spark.master}, which takes some seconds; --here goes without it")
    session = open_session(loaded.mirror, loaded.proof.tasks, asked.stop)
    if session is None:
        _log("stopped before anything was compared")
        raise typer.Exit(asked.exit_code)
    try:
        yield on_spark(session.sparkContext)
    finally:
        session.stop()


@contextlib.contextmanager
def _served(port: int, store: Store) -> Iterator[Callable[[], None]]:
    """Serves /metrics and /health; what is yielded is called by whatever must not stand still."""
    if not port:
        yield lambda: None
        return
    from twinshore.mirror.metrics.server import MetricsServer
    from twinshore.proof.metrics import ProofCollector

    collector = ProofCollector(store)
    server = MetricsServer("127.0.0.1", port, collector, collector.links)
    try:
        yield server.beat
    finally:
        server.close()


def _log(sentence: str) -> None:
    typer.echo(one_line(sentence), err=True)
