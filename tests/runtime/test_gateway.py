"""What Spark's JVM says reaches our standard error, but for how it starts and how we stop it."""

from __future__ import annotations

import os
import threading
import time

import pytest

from twinshore.runtime import spark


def test_what_is_said_while_we_stop_spark_is_not_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    spark._stopping.clear()  # another test of this process may have stopped a session of its own
    says, write = os.pipe()
    passing = threading.Thread(target=spark._pass_on, args=(says,))
    passing.start()
    said = ""
    os.write(
        write,
        b"WARNING: Using incubator modules: jdk.incubator.vector\n12:00:00 spark: ERROR Executor: out of memory\n",
    )
    deadline = time.monotonic() + 10
    while "out of memory" not in said and time.monotonic() < deadline:
        said += capsys.readouterr().err
        time.sleep(0.01)
    assert said == "12:00:00 spark: ERROR Executor: out of memory\n"

    def stop() -> None:
        os.write(write, b"12:00:01 spark: ERROR DAGScheduler: failed\n\tat java.nio.Channel.end(Channel.java:199)\n")
        os.close(write)
        passing.join(10)
        raise OSError("the JVM is gone")

    try:
        spark.stop_quietly(stop)
    finally:
        spark._stopping.clear()
    assert capsys.readouterr().err == ""
