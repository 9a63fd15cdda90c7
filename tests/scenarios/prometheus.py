"""A real Prometheus, where this machine has one: it scrapes processes on ports and raises alerts by rules."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.scenarios.test_following_writers import until
from twinshore.lab.ports import free_port
from twinshore.lab.processes import start_child

NONE = "not played: here is no Prometheus, nor does TWINSHORE_PROMETHEUS name one"


def found() -> str | None:
    return os.environ.get("TWINSHORE_PROMETHEUS") or shutil.which("prometheus")


class Prometheus:
    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1/"

    def get(self, path: str, **asked: str) -> Any:
        url = f"{self._address}{path}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def alerts(self) -> list[dict[str, str]]:
        """The labels of each that is raised."""
        return [one["labels"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"]

    def counted(self, state: str) -> dict[str, int]:
        """How many of its looks found each alert in the state, since it began."""
        asked = f'sum by (alertname) (count_over_time(ALERTS{{alertstate="{state}"}}[1d]))'
        found = self.get("query", query=asked)["result"]
        return {one["metric"]["alertname"]: int(one["value"][1]) for one in found}

    def unjudged(self) -> list[str]:
        groups = self.get("rules")["groups"]
        return [rule["name"] for group in groups for rule in group["rules"] if rule["health"] != "ok"]


@contextmanager
def scraping(program: str, folder: Path, ports: Mapping[str, int], rules: Mapping[str, str]) -> Iterator[Prometheus]:
    """It scrapes each job's port and judges every second or two, and has begun to. `rules`: texts of files."""
    folder.mkdir()
    for name, text in rules.items():
        (folder / name).write_text(text)
    jobs = [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in ports.items()]
    every = {"scrape_interval": "2s", "evaluation_interval": "1s"}
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(json.dumps({"global": every, "rule_files": list(rules), "scrape_configs": jobs}))
    words = [f"--config.file={file}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "prometheus.log"
    child = start_child([program, *words], folder=folder, log=log)
    made = Prometheus(port)

    def begun() -> bool:
        assert child.alive(), log.read_text()
        with suppress(OSError):
            seen = {one["health"] for one in made.get("targets")["activeTargets"]}
            return seen == {"up"} and not made.unjudged()
        return False

    try:
        until(begun, 60, "Prometheus judges all rules")
        yield made
    finally:
        child.end()
