"""Each line that a page gives for `twinshore` is played on a mirror of two real clusters, each on the same store."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from testkit.clients import forget_links
from tests.pages.shell import PAGES, ROOT, blocks
from tests.scenarios.mirror_rig import Rig, same_ends, settings_text, until
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import TwinshoreError
from twinshore.lab.clients import client_settings
from twinshore.lab.cluster import LabCluster

LINK = "east->west"
TOPICS = {"orders": 4, "payments": 1, "clicks.page": 1}
# What runs until it is stopped, or starts clusters: played by the files named.
ELSEWHERE = {
    "twinshore mirror run": "tests/scenarios/test_mirror_basic.py",
    "twinshore delay watch": "tests/scenarios/test_delay.py",
    "twinshore demo": "tests/cli/test_demo.py",
    "twinshore lab": "tests/lab/test_standing.py",
    "twinshore proxy groups": "tests/scenarios/test_proxy_groups_home.py",
    "twinshore proxy run": "tests/scenarios/test_proxy.py",
    "twinshore serve": "tests/server/test_jobs.py",
    "twinshore link list --server": "tests/server/test_jobs.py",
    "twinshore push serve": "tests/switch/config_service/test_served.py",
    "twinshore prove --continuous": "tests/scenarios/test_proof_again.py",
    "twinshore status --watch": "tests/cli/test_status.py",
    "twinshore status --settings twinshore.toml --watch": "tests/cli/test_status.py",
}
# Lines for what is not the case here, and what is said instead.
REFUSED = {
    "twinshore advise --cluster east --policy": "policy.toml cannot be read",
    "twinshore advise --cluster east --since": "before.json cannot be read",
    "twinshore delay --link": "topic orders is not monitored",
    "twinshore delay alarms acknowledge": "no alarm 12 is open",
    "twinshore delay alarms silence": "no alarm 12 is open",
    "twinshore delay webhook test": "there is no webhook",
    "twinshore delay forget": "no monitor 'monitor-1' runs or is missed",
    'twinshore link add "london': "no cluster 'london'",
    'twinshore link remove "london': "there is no link 'london->paris'",
    "twinshore link add": "exists already",
    "twinshore link home orders": "no two links replicate topics from east and back",
    'twinshore link resume "east->west" --topic': "is not paused",
    "twinshore link reverse": "has twins on west",
    "twinshore protection explain": "topic orders is not protected",
    "twinshore proxy breaker close": "topic orders has no such circuit breaker",
    "twinshore proxy user print": "secret file orders.password cannot be read",
    "twinshore proxy user remove": "has no value in the store",
    "twinshore proxy user set": "cannot be read",
    "twinshore settings set 'near": "no cluster is at site",
    "twinshore settings unset": "has no value in the store",
    "twinshore push remove": "nothing is pushed to shop",
    "twinshore push revoke": "0 tokens begin with",
    "twinshore push set": "shop.json cannot be read",
    "twinshore push show": "nothing is pushed to shop",
    "twinshore spool": "has no spool",
    "twinshore switch plan audit": "east has no topic audit",
    "twinshore switch run audit": "east has no topic audit",
    "twinshore switch run --of": "no switch",
    "twinshore login": "does not answer",
    "twinshore migrate mm2": "mm2.properties cannot be read",
    "twinshore mirror recreate": "is not stopped as deleted and made again",
    "twinshore mirror delete": "no deletion of the twin of orders waits",
    "twinshore mirror offset-map": "orders-3 has no map",
    "twinshore mirror resume": "no incident stops orders-3",
    "twinshore switch failback": "no switch has moved",
    "twinshore switch free": "no cluster has anything of a switch",
    "twinshore switch rescue reinject": "cannot be read",
    "twinshore switch rescue show": "cannot be read",
    "twinshore switch resume": "no switch is open",
    "twinshore switch rollback": "no switch is open",
}


def page_lines() -> list[str]:
    """Every line once, as it is typed."""
    found: dict[str, None] = {}
    for page in PAGES:
        for text in blocks(page):
            for line in text.replace("\\\n", " ").splitlines():
                words = re.sub(r"\s+#.*$", "", line.strip()).removeprefix(".venv/bin/")
                if words.startswith("twinshore "):
                    found[words] = None
    return list(found)


HERE = [line for line in page_lines() if not line.startswith(tuple(ELSEWHERE))]


@pytest.fixture(scope="module")
def folder(east: LabCluster, west: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Settings and store of a mirror that has carried some topics and was stopped."""
    made = tmp_path_factory.mktemp("verbs")
    for side in (east, west):
        forget_links(side.cluster)
    for topic, partitions in TOPICS.items():
        east.create_topic(topic, partitions=partitions)
    producer = Producer(client_settings(east.cluster))
    for topic, partitions in TOPICS.items():
        for number in range(200):
            producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0
    consumer = Consumer({**client_settings(east.cluster), "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
    consumer.close()
    text = settings_text(made, [east.cluster, west.cluster], {LINK: "orders|payments|clicks[.]page"})
    rig = Rig(made, text)
    rig.process.start()
    try:
        for topic, partitions in TOPICS.items():
            until(
                lambda topic=topic, partitions=partitions: same_ends(east.cluster, west.cluster, topic, partitions),  # type: ignore[misc]
                90,
                "all crossed",
                rig,
            )
    finally:
        assert rig.process.end() == 0
    (made / "kept").mkdir()
    for file in [rig.process.settings, *made.glob("store.db*")]:
        shutil.copy(file, made / "kept")
    yield made


def test_what_is_played_elsewhere_is() -> None:
    for line, place in ELSEWHERE.items():
        text = (ROOT / place).read_text()
        options = [word for word in shlex.split(line) if word.startswith("--") and word != "--settings"]
        assert [word for word in options if f'"{word}"' not in text] == [], place


@pytest.mark.parametrize("line", HERE)
def test_a_line_is_understood_and_answered(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in folder.glob("store.db*"):
        file.unlink()
    for file in (folder / "kept").iterdir():
        shutil.copy(file, folder)
    monkeypatch.chdir(folder)
    words = shlex.split(line.partition(" > ")[0])[1:]
    # Without it these start Spark in this process.
    starts_spark = words[0] == "prove" or words[:2] == ["proxy", "client-audit"]
    words += ["--here"] if starts_spark and "--here" not in words else []
    # Two looks at groups, ten seconds apart where nobody says otherwise.
    words += ["--apart", "0.5"] if words[:2] == ["advise", "--cluster"] and "--apart" not in words else []
    register_verbs()
    done = CliRunner().invoke(app, words)
    assert "Usage: " not in done.output, "the words are not understood"
    refused = [said for start, said in REFUSED.items() if line.startswith(start)]
    if refused:
        assert isinstance(done.exception, TwinshoreError), done.output
        assert refused[0] in done.exception.message
    else:
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.output or done.exit_code == 0
