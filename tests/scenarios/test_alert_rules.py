"""The alert rules of `deploy/prometheus` under a real Prometheus: each is raised by its cause, and ends with it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.proxy.served import ProxyProcess
from tests.scenarios.mirror_rig import until
from tests.scenarios.prometheus import NONE, Prometheus, found, scraping
from tests.scenarios.switch_rig import QUICK, SwitchRig, carried, short_leases
from tests.scenarios.test_proxy_switch import loaded, proxies
from tests.test_deploy import DEPLOY, EXPRESSIONS, RULES
from twinshore.lab.cluster import LabCluster
from twinshore.lab.mirror_process import VerbProcess
from twinshore.lab.ports import free_port
from twinshore.switch.core.steps import SwitchStep

__all__ = ["short_leases"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]
HEALTHY_S = 600.0
PROOF = ("prove", "--continuous", "--here", "--every", "1", "--metrics-port")
AS_SHIPPED = {name: (DEPLOY / "prometheus" / name).read_text() for name in RULES}
# Where a rule waits for ten minutes or longer, minutes are seconds.
SOONER = {name: re.sub(r"(for: \d\d)m\n", r"\1s\n", AS_SHIPPED[name]) for name in ("alerts.yml", "proof.yml")}
BY_ITS_CAUSE = "under a real Prometheus each is raised by its cause and ends with it"


@dataclass
class Watched:
    """A mirror, a proxy and a proof between two clusters, and Prometheus, which scrapes them."""

    rig: SwitchRig
    proxy: ProxyProcess
    proof: VerbProcess
    prometheus: Prometheus

    def fires(self, within_s: float, name: str, **labels: str) -> None:
        told = {"alertname": name, **labels}.items()
        until(lambda: any(told <= one.items() for one in self.prometheus.alerts()), within_s, f"{told}", self.rig.rig)

    def is_well(self) -> None:
        until(lambda: not self.prometheus.alerts(), 120, "no alert is raised", self.rig.rig)


@contextmanager
def watched(
    program: str, folder: Path, east: LabCluster, west: LabCluster, rules: Mapping[str, str], *, whole: bool = False
) -> Iterator[Watched]:
    """`whole`: with a delay monitor too."""
    ports = {job: free_port() for job in ("twinshore", "twinshore-proof", *["twinshore-delay"] * whole)}
    mirror = {"metrics_port": ports["twinshore"], **({} if whole else QUICK)}
    # One machine for all of it is slow at times.
    delay = 'period_s = 20\nrecovery_point_s = 60\nheartbeat_s = 120\nwindows = "plain"\n'
    sections = f"[delay]\n{delay}metrics_port = {ports['twinshore-delay']}\n" if whole else ""
    with ExitStack() as stack:
        rig = stack.enter_context(carried(east, west, "watched", folder, mirror=mirror, sections=sections))
        (proxy,) = stack.enter_context(proxies(rig, 1))
        proof = VerbProcess((*PROOF, str(ports["twinshore-proof"])), rig.settings, folder / "proof.log")
        monitor = VerbProcess(("delay", "watch"), rig.settings, folder / "monitor.log")
        for one in (proof, monitor)[: 1 + whole]:
            stack.callback(one.end)
            one.start()
        ports["twinshore-proxy"] = proxy.metrics_port
        asked = scraping(program, folder / "prometheus", ports, rules)
        yield Watched(rig, proxy, proof, stack.enter_context(asked))


@pytest.mark.claim("groups", "alerts-quiet", "no alert is raised for 10 minutes beside processes that are all well")
def test_no_alert_is_raised_where_all_is_well(east: LabCluster, west: LabCluster, tmp_path: Path) -> None:
    """By the rules as they are shipped. What they and the dashboard ask for is served."""
    if (program := found()) is None:
        print(f"told: {NONE}")
        return  # Not every system has it.
    with (
        watched(program, tmp_path, east, west, AS_SHIPPED, whole=True) as stage,
        loaded(stage.rig, [stage.proxy], per_s=20) as load,
    ):
        until_s = time.monotonic() + HEALTHY_S
        while time.monotonic() < until_s:
            load.reads(10)
            assert (stage.prometheus.alerts(), stage.prometheus.unjudged()) == ([], [])
            time.sleep(1)
        assert stage.prometheus.counted("firing") == {}
        pending = stage.prometheus.counted("pending")  # looks, one a second
        assert max(pending.values(), default=0) < 30, pending
        asked = set(re.findall(r"\btwinshore_\w+", " ".join(EXPRESSIONS.values())))
        served = stage.prometheus.get("metadata").keys()
        assert {name for name in asked if served.isdisjoint((name, name.removesuffix("_total")))} == set()
        load.end()
    print(
        f"told: 0 alerts in {HEALTHY_S:g} s; seen for a moment and not raised: {', '.join(sorted(pending)) or 'none'}"
    )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched | None]:
    """On clusters of its own, which are killed."""
    if (program := found()) is None:
        print(f"told: {NONE}")
        yield None
        return
    flags, folder = ("-XX:TieredStopAtLevel=1",), tmp_path_factory.mktemp("alerts")
    with (
        LabCluster("east", jvm_flags=flags) as east,
        LabCluster("west", jvm_flags=flags) as west,
        watched(program, folder, east, west, SOONER) as made,
    ):
        yield made


@pytest.mark.claim("proxy", "alerts", f"alerts of a proxy that is not heard, or a cluster away: {BY_ITS_CAUSE}")
@pytest.mark.claim("groups", "alerts", f"alerts of incidents that last, and of a proof that is gone: {BY_ITS_CAUSE}")
def test_a_dead_cluster_is_told_until_it_is_back(stage: Watched | None) -> None:
    if stage is None:
        return  # Not every system has it.
    stage.is_well()
    stage.rig.west.brokers[0].kill()
    stage.fires(90, "TwinshoreProxyNotRegistered", cluster="west")
    stage.fires(120, "TwinshoreProxyClusterAway", cluster="west")
    stage.fires(180, "TwinshoreIncident", kind="target away")
    stage.rig.west.brokers[0].restart()
    stage.is_well()


@pytest.mark.claim("groups", "alerts", f"alerts of incidents that last, and of a proof that is gone: {BY_ITS_CAUSE}")
def test_a_proof_that_is_gone_is_told_until_it_is_back(stage: Watched | None) -> None:
    if stage is None:
        return  # Not every system has it.
    stage.is_well()
    asked = "max(twinshore_proof_age_seconds)"
    until(lambda: stage.prometheus.get("query", query=asked)["result"] != [], 120, "something is proven")
    stage.proof.kill()
    stage.fires(60, "TwinshoreProofDown")
    stage.proof.start()
    stage.is_well()


@pytest.mark.claim("switch", "alerts", f"alerts of writers that wait, and of a switch that stands: {BY_ITS_CAUSE}")
def test_writers_that_wait_are_told_until_they_go_on(stage: Watched | None) -> None:
    """The process of a switch dies while it holds them. That is over before the rule of incidents has it told."""
    if stage is None:
        return  # Not every system has it.
    stage.is_well()
    rig, before = stage.rig, stage.prometheus.counted("firing").get("TwinshoreIncident", 0)
    with loaded(rig, [stage.proxy]) as load:
        rig.killed(SwitchStep.DRAIN, "before", "run", rig.topic, "--to", "west", "--yes", "--hold-s", "20")
        stage.fires(30, "TwinshoreWritersWait")
        until(lambda: rig.record()["state"] == "turned back", 60, "the mirror turns the switch back", rig.rig)
        load.reads(500)
        stage.is_well()
        load.end()
    assert stage.prometheus.counted("firing").get("TwinshoreIncident", 0) == before


@pytest.mark.claim("switch", "alerts", f"alerts of writers that wait, and of a switch that stands: {BY_ITS_CAUSE}")
@pytest.mark.usefixtures("short_leases")
def test_a_switch_that_stands_is_told_until_it_has_ended(stage: Watched | None) -> None:
    """Its process dies before it has held anybody: nothing ends it but an operator."""
    if stage is None:
        return  # Not every system has it.
    stage.is_well()
    stage.rig.killed(SwitchStep.ANNOUNCE, "before", "run", stage.rig.topic, "--to", "west", "--yes")
    stage.fires(60, "TwinshoreSwitchStands")
    said = stage.rig.switch("rollback")
    assert said.code == 0, said.text
    stage.is_well()
