"""A daemon that forks Spark's Python workers on this machine, with modules loaded before.

Spark's own daemon loads nothing, since modules may start threads: each worker, and each standby, spent two seconds of
processor time on ours. Only the linear algebra below numpy would start threads, and is configured not to. Workers load
themselves what the daemon could not.
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
    return {"spark.python.daemon.module": __name__, f"spark.executorEnv.{PRELOAD_VARIABLE}": ",".join(modules)}


def preload_modules(modules: Iterable[str]) -> None:
    """Loads those modules that can be loaded, and compiled loops where built."""
    from twinshore.kafka.protocol.batch_join import LOOPS_MODULE, load_loops
    from twinshore.runtime.compile import is_built

    for module in ("pyspark.worker", *modules):
        with contextlib.suppress(Exception):
            import_module(module)
    if is_built():
        load_loops(LOOPS_MODULE)


def path_without_archives(path: Iterable[str]) -> list[str]:
    """Returns the path without the archives that Spark prepends, where the same package is installed: each process
    would compile an archive's modules again, a second of processor time.
    """
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
