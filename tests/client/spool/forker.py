"""A process that opens a producer with a spool and forks: the child tries all that it has, the parent goes on."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.client.spool.spooling import put, record
from twinshore.client import FailoverProducer
from twinshore.client.spool import Spool


def tries(what: Callable[[], object]) -> None:
    try:
        print(what(), flush=True)
    except (RuntimeError, BufferError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)


def main(folder: Path) -> None:
    spool = Spool(folder)
    away = {"away": {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}}
    producer = FailoverProducer({}, clusters=away, topics=["orders"], spool=spool)
    producer.produce("orders", b"before")
    batch = spool.keep([record(5)])
    assert batch is not None
    release, held = os.pipe()
    child = os.fork()
    if not child:
        os.close(held)
        tries(lambda: producer.produce("orders", b"of the child"))
        tries(lambda: producer.flush(1))
        tries(lambda: put(spool, record(7)))
        tries(lambda: spool.commit(batch))
        tries(producer.close)
        tries(spool.close)
        sys.stdout.write("the child has tried\n")
        sys.stdout.flush()
        os.read(release, 1)
        os._exit(0)
    time.sleep(0.2)
    spool.commit(batch)
    producer.produce("orders", b"of the parent")
    print(f"left {producer.close(0)}", flush=True)
    again = Spool(folder)
    print(f"there are {dict(again.topics())}", flush=True)
    again.close(mark=False)
    os.close(held)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
