"""`twinshore prove`: whether both sides of links hold the same records, through which offset, and where they differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from twinshore.cli import options
from twinshore.cli.app import load_cli_settings, print_result
from twinshore.kafka.clock import wall_ms
from twinshore.runtime.process import StopRequest, catch_stop_request

if TYPE_CHECKING:
    from twinshore.config.settings import Settings
    from twinshore.proof.operations import PreparedProof, ProofRequest
    from twinshore.proof.rounds import ProofReport

AGAIN = typer.Option(False, "--again", help="Start at the beginning of the logs, not where the last proof ended.")
ALL = typer.Option(False, "--all", help="Also show identical partitions, with offsets, records and digests.")
METRICS = typer.Option(0, "--metrics-port", min=0, max=65535, help="Serve /metrics and /health on this port.")


def register(app: typer.Typer) -> None:
    app.command("prove")(prove)


def prove(
    settings: Path = options.SETTINGS,
    link: list[str] = options.LINKS,
    topic: list[str] = options.TOPICS,
    again: bool = AGAIN,
    sample: float = typer.Option(
        0.0, "--sample", min=0, max=1, help="Compare only this fraction of offsets, such as 0.05; 0: all."
    ),
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the sample; 0: a new sample each time."),
    way: str = typer.Option(
        "", "--mode", help="Comparison: exact, offset-map, compacted or content; default: chosen for each topic."
    ),
    throttle: float = typer.Option(
        -1.0, "--throttle", help="MB/s to read from both clusters together; default: as in the settings."
    ),
    digest: bool = typer.Option(True, "--digest/--no-digest", help="Compute a digest of the records."),
    continuous: bool = typer.Option(False, "--continuous", help="Repeat until stopped."),
    every: float = typer.Option(0.0, "--every", min=0, help="Seconds between rounds; default: as in the settings."),
    here: bool = typer.Option(False, "--here", help="Run in this process, without Spark: faster for few records."),
    metrics_port: int = METRICS,
    behind_max: int = typer.Option(
        -1, "--behind-max", help="Exit code 2 if the source is ahead by more offsets than this; use 0 before a switch."
    ),
    everything: bool = ALL,
    json_output: bool = options.JSON,
) -> None:
    """Compares both sides of links record by record, up to the lower of both ends, while traffic flows.

    Prints the verdict, then the differences. Exit code 0: identical; 1: not identical; 2: unknown, because something
    could not be compared; 130, 143: stopped by Ctrl-C or SIGTERM. Starts where the last proof ended, as far as both
    sides still hold the proven records.
    """
    with catch_stop_request() as request:
        from twinshore.proof.operations import ProofRequest

        proof_request = ProofRequest(
            links=link,
            topics=topic,
            again=again,
            sample=sample,
            seed=seed,
            way=way,
            throttle_mb_s=throttle,
            digest=digest,
            continuous=continuous,
            every_s=every,
            behind_max=behind_max,
        )
        shows = partial(_show, as_json=json_output, everything=everything)
        code = _prove(proof_request, load_cli_settings(settings), request, shows, here=here, metrics_port=metrics_port)
        raise typer.Exit(request.exit_code if request.stop.is_set() and not continuous else code)


def _prove(
    proof_request: ProofRequest,
    settings: Settings,
    request: StopRequest,
    shows: Callable[..., None],
    *,
    here: bool,
    metrics_port: int,
) -> int:
    from twinshore.proof.jobs import open_bundle_runner
    from twinshore.proof.operations import check_topics, prepare
    from twinshore.proof.operations import prove as proven
    from twinshore.proof.service import serve_proof_metrics
    from twinshore.state.opening import open_or_create

    prepared = prepare(proof_request, settings)
    with ExitStack() as stack:
        store = stack.enter_context(open_or_create(settings))
        check_topics(prepared, settings, store)
        beat = stack.enter_context(serve_proof_metrics(metrics_port, store))
        run = stack.enter_context(
            open_bundle_runner(settings, here=here, stop=request.stop, tell=partial(typer.echo, err=True))
        )
        if run is None:
            return request.exit_code

        def stopped() -> bool:
            beat()
            return request.stop.is_set()

        tell = partial(shows, prepared, settings)
        return proven(prepared, settings, store, run, tell=tell, stopped=stopped)


def _show(prepared: PreparedProof, settings: Settings, report: ProofReport, *, as_json: bool, everything: bool) -> None:
    from twinshore.proof.operations import sentences_of, values_of

    lines = sentences_of(report, prepared, settings, everything=everything, now_ms=wall_ms())
    print_result(values_of(report, prepared, settings), lines, as_json=as_json)
