"""The mirror and the proxy of the demo, as a user would start them: processes of their own, whose workers can be found
and killed. The proxy's is the one address that its producers and its consumer group know."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from twinshore.fleet import Cluster
from twinshore.lab.errors import LabError, log_tail
from twinshore.lab.ports import run_of_ports
from twinshore.lab.processes import start_child
from twinshore.lab.stages.mirror_process import MirrorProcess, VerbProcess, settings_of

STOP_PATIENCE_S = 15.0
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


class DemoMirror(MirrorProcess):
    """`twinshore mirror run` between two clusters, with its settings, store and log in `folder`. `more`: further lines
    of the settings, for those that run beside it."""

    def __init__(
        self,
        folder: Path,
        source: Cluster,
        target: Cluster,
        topics: str,
        *,
        more: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        # Short, so that the demo shows lanes being passed from one Spark job to the next.
        text = settings_of(source, target, store=folder / "store.db", topics=topics, mirror={"tide_s": 10})
        ports = {int(address.rpartition(":")[2]) for address in target.bootstrap}
        start = partial(start_child, tied=not detached)
        super().__init__(folder, "\n".join([text, *more, ""]), target_ports=ports, start=start)

    def kill_a_pump(self) -> int:
        """kill -9 for one worker that carries a lane; its process id."""
        pumps = self.pumps()
        if not pumps:
            raise LabError("no Spark worker of the mirror is connected to the target", hint=f"see {self.log}")
        victim = pumps[0]
        victim.send_signal(signal.SIGKILL)
        return int(victim.pid)


class DemoProxy(VerbProcess):
    """`twinshore proxy run` with the mirror's settings and store."""

    def __init__(self, mirror: DemoMirror, port: int, *, detached: bool = False) -> None:
        start = partial(start_child, tied=not detached)
        super().__init__(("proxy", "run"), mirror.settings, mirror.folder / "proxy.log", start=start)
        self.cluster = Cluster("proxy", (f"127.0.0.1:{port}",))

    def start(self, *arguments: str) -> None:
        """Returns once it serves."""
        super().start(*arguments)
        until_s = time.monotonic() + STARTS_WITHIN_S
        while _SERVES not in self.said:
            if not self.child.alive() or time.monotonic() > until_s:
                raise LabError(f"the proxy does not serve; the end of its log:\n{log_tail(self.log)}")
            time.sleep(0.05)
