"""Rules about links: where each fires, and just beside it does not."""

from __future__ import annotations

from dataclasses import replace

from tests.advisor.seen_kit import SOUND, found
from twinshore.advisor.core.model import ClusterSnapshot, LinkSnapshot, TwinSnapshot
from twinshore.kafka.protocol.access_control import Acl, AclOperation, AclPermission, PatternType, ResourceType

TWIN = TwinSnapshot("orders", "orders", 0, 0)
LINK = LinkSnapshot("east->west", ("west-1:9092",), False, True, "flowing", (TWIN,))


def linked(link: LinkSnapshot = LINK, **twin: object) -> ClusterSnapshot:
    return replace(SOUND, links=(replace(link, twins=(replace(TWIN, **twin),)),))  # type: ignore[arg-type]


def test_a_sound_link() -> None:
    rules = ("link-not-running", "twin-behind", "twin-stopped", "twin-differs", "twin-rights")
    assert not [one for rule in rules for one in found(linked(), rule)]


def test_no_mirror_runs() -> None:
    stopped = replace(LINK, runs=False, says="stopped, 3 min ago")
    (one,) = found(linked(stopped), "link-not-running")
    assert (one.subject, one.evidence) == ("link east->west", "stopped, 3 min ago")
    assert one.commands == ("twinshore status --link 'east->west' --topics",)
    assert not found(replace(SOUND, links=(replace(stopped, twins=()),)), "link-not-running"), "it has carried nothing"


def test_twins_that_lack_records() -> None:
    (one,) = found(linked(lag=1001), "twin-behind")
    assert one.evidence.endswith("orders 1,001")
    assert not found(linked(lag=1000), "twin-behind")
    assert not found(linked(lag=None), "twin-behind"), "nobody knows: that is told as unseen"


def test_partitions_that_are_stopped() -> None:
    (one,) = found(linked(replace(LINK, incidents=("the twin was written to",)), stopped=2), "twin-stopped")
    assert "orders (2 partitions)" in one.evidence and one.evidence.endswith("; the twin was written to")
    assert not found(linked(stopped=0), "twin-stopped")


def test_settings_that_differ() -> None:
    differs = (("min.insync.replicas", "1", "2"), ("segment.ms", "1000", None))
    (one,) = found(linked(differs=differs), "twin-differs")
    assert one.subject == "twin orders of east->west"
    assert one.evidence == (
        "min.insync.replicas is 1, it should be 2, segment.ms is 1000, it should be Kafka's default"
    )
    where = "kafka-configs.sh --bootstrap-server west-1:9092 --alter --topic orders"
    assert one.commands == (
        f"{where} --add-config min.insync.replicas=2",
        f"{where} --delete-config segment.ms",
    )
    assert not found(linked(), "twin-differs")


READ = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:anna", "*", AclOperation.READ, AclPermission.ALLOW)
SHUT = Acl(
    ResourceType.TOPIC,
    "or",
    PatternType.PREFIXED,
    "User:o'neil",
    "10.0.0.1",
    AclOperation.ALTER_CONFIGS,
    AclPermission.DENY,
)


def test_acls_that_differ_and_the_lines_that_mend_them() -> None:
    (one,) = found(linked(replace(LINK, lacks=(READ,), left=(SHUT,))), "twin-rights")
    assert one.subject == "link east->west, ACLs"
    where = "kafka-acls.sh --bootstrap-server west-1:9092"
    assert one.commands == (
        f"{where} --add --topic orders --resource-pattern-type literal --allow-principal User:anna --allow-host '*'"
        " --operation Read",
        f"{where} --remove --force --topic or --resource-pattern-type prefixed --deny-principal 'User:o'\"'\"'neil'"
        " --deny-host 10.0.0.1 --operation AlterConfigs",
    )


def test_another_side_that_lets_everybody_do_everything() -> None:
    (one,) = found(linked(replace(LINK, open=True)), "twin-rights")
    assert one.evidence and one.by_hand and one.commands == ()
