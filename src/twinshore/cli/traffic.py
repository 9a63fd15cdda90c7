"""`twinshore proxy traffic`: what goes through the proxies, of whom and where."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from twinshore.cli.looking import JSON, SETTINGS, load_alone
from twinshore.fleet.sentences import one_line

BY = typer.Option("topic", "--by", help="topic, client, cluster, way (from a proxy to a cluster), or flow: all apart.")
SORT = typer.Option("bytes", "--sort", help="What the largest has most of: bytes, requests, records, errors, latency.")
LAST = typer.Option("5m", "--last", help="Of how long: 90s, 5m, 2h.")
TOPIC = typer.Option("*", "--topic", help="Only this topic, or with a `*` behind, topics that begin so.")
CLIENT = typer.Option("*", "--client", help="Only this client id, or with a `*` behind, ids that begin so.")
PAGE = typer.Option(1, "--page", help="Which page.", min=1)
SIZE = typer.Option(20, "--lines", help="How many lines a page has.", min=1)


def register(proxy: typer.Typer) -> None:
    """Adds the verb to `proxy`."""
    proxy.command("traffic")(traffic)


def traffic(
    by: str = BY,
    sort: str = SORT,
    last: str = LAST,
    topic: str = TOPIC,
    client: str = CLIENT,
    page: int = PAGE,
    size: int = SIZE,
    settings: Path = SETTINGS,
    json_output: bool = JSON,
) -> None:
    """Shows what goes through the proxies: bytes, requests and records a second, latency, connections, errors.

    Proxies tell it to the store once in a window of [proxy] traffic_every_s seconds. Asks no cluster.
    """
    from twinshore.proxy.operations.traffic import asked_of, look
    from twinshore.store.opening import open_to_look

    asked = asked_of(by, sort, last, topic, client, page, size)
    with open_to_look(load_alone(settings)) as store:
        found = look(asked, store)
    if json_output:
        typer.echo(json.dumps(found.as_values()))
        return
    for sentence in found.sentences():
        typer.echo(one_line(sentence))
