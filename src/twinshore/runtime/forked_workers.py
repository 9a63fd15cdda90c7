"""What Spark forks its Python workers from, where they are of this machine: with all that they need loaded once.

Spark's own daemon loads nothing before it forks, since what is loaded may start threads: so each worker of a lane took
two seconds and more of a processor to load our modules, and as long again for its heir. Ours load one that would, the
linear algebra below numpy, which is told to start none. A worker whose daemon could not load them does so itself.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from twinshore.runtime.process import disable_hypothesis

PRELOAD_VARIABLE = "TWINSHORE_WORKERS_LOAD"
# As Spark names them: SPARK_HOME/python/lib/pyspark.zip, and py4j's beside it.
_ARCHIVE = re.compile(r"pyspark\.zip|py4j-.*-src\.zip")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def worker_options(modules: Iterable[str]) -> dict[str, str]:
    """What Spark is told, so that its workers have these modules."""
    return {"spark.python.daemon.module": __name__, f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(modules)}


def preload_modules(modules: Iterable[str]) -> None:
    """All of these that can be loaded, with compiled loops where they are built."""
    from twinshore.kafka.protocol.batch_join import LOOPS_MODULE, load_loops
    from twinshore.runtime.compile import is_built

    for module in ("pyspark.worker", *modules):
        with contextlib.suppress(Exception):
            import_module(module)
    if is_built():
        load_loops(LOOPS_MODULE)


def path_without_archives(path: Iterable[str]) -> list[str]:
    """This path of modules without the archives that Spark puts first, where the very same package is installed: what
    comes out of an archive is compiled anew by each process, which takes a second of a processor."""
    entries = list(path)
    archives = [entry for entry in entries if _ARCHIVE.fullmatch(Path(entry).name)]
    folders = {Path(entry).parents[2] for entry in archives if len(Path(entry).parents) > 2}
    whole = {str(folder.parent) for folder in folders if (folder / "daemon.py").is_file()}
    if not whole or not all((Path(entry) / "py4j").is_dir() for entry in whole):
        return entries
    kept = [entry for entry in entries if entry not in archives]
    return kept + [entry for entry in whole if entry not in kept]


def main() -> None:
    sys.path[:] = path_without_archives(sys.path)
    disable_hypothesis()
    from pyspark import daemon

    for name in _THREADS:
        os.environ.setdefault(name, "1")
    preload_modules(filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(",")))
    gc.collect()
    gc.freeze()  # what is here stays, and the workers share it
    daemon.manager()


if __name__ == "__main__":
    main()
