"""What Spark forks its Python workers from, where they are of this machine: with all that they need loaded once.

Spark's own daemon loads nothing before it forks, since what is loaded may start threads: so each worker of a lane took
two seconds and more of a processor to load our modules, and as long again for its heir. Ours load one that would, the
linear algebra below numpy, which is told to start none. A worker whose daemon could not load them does so itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable
from importlib import import_module

TO_LOAD = "TWINSHORE_WORKERS_LOAD"
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def options(modules: Iterable[str]) -> dict[str, str]:
    """What Spark is told, so that its workers have these modules."""
    return {"spark.python.daemon.module": __name__, f"spark.executorEnv.{TO_LOAD}": ",".join(modules)}


def load(modules: Iterable[str]) -> None:
    """All of these that can be loaded, with compiled loops where they are built."""
    from twinshore.service.compiling import built
    from twinshore.wire.join import LOOPS
    from twinshore.wire.loops import loops

    for module in ("pyspark.worker", *modules):
        with contextlib.suppress(Exception):
            import_module(module)
    if built():
        loops(LOOPS)


def main() -> None:
    from pyspark import daemon

    for name in _THREADS:
        os.environ.setdefault(name, "1")
    load(filter(None, os.environ.get(TO_LOAD, "").split(",")))
    gc.collect()
    gc.freeze()  # what is here stays, and the workers share it
    daemon.manager()


if __name__ == "__main__":
    main()
