"""Commands as pages give them, played in a real shell where Kafka's and the databases' tools are."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from testkit.jars import fetch_tools_classpath
from twinshore.lab.jars import find_java

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# What each script of Kafka's runs.
_KAFKA = {
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}


def blocks(page: Path) -> list[str]:
    """The shell blocks of a page, also those within a list."""
    found = re.findall(r"^( *)```sh\n(.*?)^\1```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def block(page: str, word: str) -> str:
    """The one block of docs/PAGE.md in which the word stands."""
    (found,) = [text for text in blocks(ROOT / "docs" / f"{page}.md") if word in text]
    return found


def replaced(text: str, **words: str) -> str:
    """What a page says for an example, put right; each word has to be there."""
    for old, new in words.items():
        assert old in text, f"{old} is not in:\n{text}"
        text = text.replace(old, new)
    return text


def kafka_tools(folder: Path) -> Path:
    """A folder with Kafka's scripts; they are its own classes, as its scripts start them."""
    folder.mkdir(exist_ok=True)
    for name, main in _KAFKA.items():
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nexec {find_java()} -XX:TieredStopAtLevel=1 -cp "{fetch_tools_classpath()}" {main} "$@"\n'
        )
        script.chmod(0o755)
    return folder


def play(text: str, folder: Path, *tools: Path) -> str:
    """What bash says to these lines, the tools being first on its path; it ends at the first that fails."""
    path = os.pathsep.join([*map(str, tools), os.environ["PATH"]])
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{text}\nsaid:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
