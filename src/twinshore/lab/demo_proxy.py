"""The proxy of the demo, as a user would start it: the one address that its producers and its consumer group know."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twinshore.fleet import Cluster
from twinshore.lab.demo_mirror import DemoMirror
from twinshore.lab.errors import LabError, log_tail
from twinshore.lab.ports import run_of_ports
from twinshore.lab.processes import Child, ProcessMark

NODES = 4  # brokers of the lab have small numbers
STARTS_WITHIN_S = 60.0
_SERVES = "serves clients of"


def proxy_section(clusters: Sequence[Cluster]) -> tuple[int, list[str]]:
    """The port where clients begin, and the settings' lines of a proxy before these clusters."""
    names = ", ".join(f'"{one.name}"' for one in clusters)
    port = run_of_ports(1 + NODES * len(clusters))
    return port, [
        "[proxy]",
        'advertised_host = "127.0.0.1"',
        f"port = {port}",
        f"clusters = [{names}]",
        f"nodes_per_cluster = {NODES}",
    ]


class DemoProxy:
    """`twinshore proxy run` with the mirror's settings and store."""

    def __init__(self, mirror: DemoMirror, port: int, *, detached: bool = False) -> None:
        self.log = mirror.settings.parent / "proxy.log"
        self.cluster = Cluster("proxy", (f"127.0.0.1:{port}",))
        self._mirror, self._detached = mirror, detached
        self._child: Child | None = None

    def start(self) -> None:
        """Returns once it serves."""
        self._child = self._mirror.start_beside(["proxy", "run"], self.log, detached=self._detached)
        until_s = time.monotonic() + STARTS_WITHIN_S
        while _SERVES not in self.log.read_text(errors="replace"):
            if not self._child.alive() or time.monotonic() > until_s:
                raise LabError(f"the proxy does not serve; the end of its log:\n{log_tail(self.log)}")
            time.sleep(0.05)

    @property
    def mark(self) -> ProcessMark:
        """Its process."""
        if self._child is None:
            raise LabError("the demo's proxy was never started")
        return self._child.mark

    def end(self) -> None:
        """Whoever was connected is hung up on."""
        if self._child is not None:
            self._child.end(patience_s=0)
