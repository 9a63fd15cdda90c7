"""What all parts say of themselves, as one answer: figures with the number of the process, and who is well."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from twinshore.proxy.several.process import PartProcess

PATIENCE_S: Final = 2.0
# Whatever web proxy the environment names, parts are on this machine.
_BY_ITSELF: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Joined(Collector):
    """Asks each part whenever somebody asks here. One that does not answer is missing."""

    def __init__(self, parts: Sequence[PartProcess]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("twinshore_proxy_processes", "processes that are to serve", value=len(self._parts))
        serve = sum(one.serves for one in self._parts)
        yield GaugeMetricFamily("twinshore_proxy_processes_now", "processes that let clients in", value=serve)
        restarts = CounterMetricFamily("twinshore_proxy_restarts", "times it was started again", labels=["process"])
        for one in self._parts:
            restarts.add_metric([str(one.number)], max(0, one.starts - 1))
        yield restarts
        yield from self._of_parts()

    def _of_parts(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for one in self._parts:
            for told in text_string_to_metric_families(_asked(one, "metrics")[1]):
                metric = found.setdefault(told.name, Metric(told.name, told.documentation, told.type))
                for sample in told.samples:
                    metric.add_sample(sample.name, {**sample.labels, "process": str(one.number)}, sample.value)
        yield from found.values()

    def processes(self) -> dict[str, Any]:
        """How each part stands, for /health."""
        return {str(one.number): self._stands(one) for one in self._parts}

    def _stands(self, one: PartProcess) -> dict[str, Any]:
        code, text = _asked(one, "health")
        told = json.loads(text) if text else {"ok": False, "says": "it does not answer"}
        return {"pid": one.pid, "serves": one.serves, **told, "ok": code == 200}


def trouble(processes: Mapping[str, Any]) -> str:
    """Why the whole should be started again, by how each part stands; empty while one part is well, as its keeper sees
    to the others. Nobody is asked a second time: they may say something else."""
    if any(one["serves"] and one["ok"] for one in processes.values()):
        return ""
    says = "; ".join(f"{number}: {one['says']}" for number, one in processes.items())
    return f"no process is well: {says}"


def _asked(one: PartProcess, page: str) -> tuple[int, str]:
    if not one.port:
        return 0, ""
    with suppress(OSError, HTTPException):
        try:
            with _BY_ITSELF.open(f"http://127.0.0.1:{one.port}/{page}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()
    return 0, ""
