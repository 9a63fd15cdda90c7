"""The threads of clients: known by their names, and gone once their client is closed."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import twinshore.client
from twinshore.client import FailoverConsumer, FailoverPairConsumer, FailoverProducer
from twinshore.client.sites import thread_name

AWAY = {name: {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0} for port, name in ((1, "east"), (2, "west"))}


def test_all_threads_of_clients_bear_one_prefix_and_end_with_them() -> None:
    before = {*threading.enumerate()}
    with (
        FailoverProducer({}, clusters=AWAY, topics=["orders"], name="shop"),
        FailoverConsumer({"group.id": "billing"}, clusters=AWAY) as consumer,
        FailoverPairConsumer({"group.id": "pairs"}, clusters=AWAY) as pairs,
    ):
        consumer.subscribe(["orders"])
        pairs.subscribe(["orders"])
        names = {one.name for one in threading.enumerate() if one not in before}
    found = [f"homes {whose} {cluster}" for whose in ("shop", "billing") for cluster in ("east", "west")]
    found += ["ends pairs east", "ends pairs west", "moves shop", "protects shop"]
    found += ["protection east", "protection west"]
    assert names == {f"twinshore-{one}" for one in found}
    until_s = time.monotonic() + 20
    while {*threading.enumerate()} - before and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not {*threading.enumerate()} - before
    assert thread_name("calls") == "twinshore-calls"


def test_a_thread_is_made_in_one_place() -> None:
    """Else its name would be what somebody thought of that day."""
    folder = Path(twinshore.client.__file__).parent
    made = [path for path in folder.rglob("*.py") if re.search(r"threading\.Thread\(", path.read_text())]
    assert made == [folder / "sites.py"]
