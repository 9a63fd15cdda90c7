"""The names that other systems hold, once more as literal text. Whoever changes one of them breaks what runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from twinshore.config import frozen
from twinshore.kafka.protocol.access_control import ANY_USER, WILDCARD, Acl
from twinshore.replication.task.lookups import transactional_id_prefix
from twinshore.switch.core.acl_rules import write_denied_to

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "fixtures" / "formats" / "unversioned" / "lines.json"

TOPICS = "Clusters that run have these topics, and rules for them: under other names a mirror would begin with nothing."
KEYS = "A reader of another version finds by a line's key whom it speaks of, though it cannot read its value."
LINES = "A line of another version must be known as one by readers that cannot read it."
CLIENTS = "Operators have given these ids quotas, and look for them in the logs of their brokers."
TRANSACTIONS = "Rights on transactional ids are granted by this prefix; brokers fence what was left by the whole id."
GROUPS = "Rights to read are granted by the group's name."
MARKS = "Offsets that bear it are a link's own: without it groups would be taken for consumers that committed there."
HEADERS = "Records with this header lie in topics of applications; by it a call is found again that may be there."
SETTINGS = "Applications set it in code that is not ours."
CLUSTER = "Clients of a proxy have seen this id; another one is another cluster for them."
PATHS = "Clients of earlier versions, and those in other languages, ask for it."
FILES = "Files of earlier versions lie on disks of applications, with records in them that nobody else has."

FROZEN = "names that other systems hold are what they were: topics, client ids, headers, paths, keys of lines"
NAMES = {
    "OWN_PREFIX": ("twinshore.", TOPICS),
    "HEARTBEATS": ("twinshore.heartbeats", TOPICS),
    "TWINS_TOPIC": ("twinshore.twins", TOPICS),
    "HOMES_TOPIC": ("twinshore.homes", TOPICS),
    "FOLLOWERS_TOPIC": ("twinshore.followers", TOPICS),
    "RESCUED_TOPIC": ("twinshore.rescued", TOPICS),
    "PROTECTION_TOPIC": ("twinshore.protection", TOPICS),
    "GATES_TOPIC": ("twinshore.gates", TOPICS),
    "NOTES_TOPICS": (
        (
            "twinshore.twins",
            "twinshore.homes",
            "twinshore.followers",
            "twinshore.rescued",
            "twinshore.protection",
            "twinshore.gates",
        ),
        TOPICS,
    ),
    "GROUPS_HOME": ("twinshore.groups", TOPICS),
    "NOWHERE_TOPIC": ("twinshore.nowhere", TOPICS),
    "HOME_LINE": ("home", KEYS),
    "CLAIM_LINE": ("claim", KEYS),
    "SWITCH_LINE": ("switch", KEYS),
    "PART_LINE": ("part", KEYS),
    "FOLLOWER_LINE": ("follower", KEYS),
    "LINK_LINE": ("link", KEYS),
    "TWIN_LINE": ("twin", KEYS),
    "LEVEL_LINE": ("level", KEYS),
    "REACHED_LINE": ("reached", KEYS),
    "GATE_LINE": ("gate", KEYS),
    "PROMOTED_LINE": ("promoted", KEYS),
    "LINE_VERSION_KEY": ("v", LINES),
    "LINE_VERSION": (1, LINES),
    "CLIENT_ID": ("twinshore", CLIENTS),
    "TASK_CLIENT_ID": ("twinshore-pump", CLIENTS),
    "UNITS_CLIENT_ID": ("twinshore-units", CLIENTS),
    "SCOUT_CLIENT_ID": ("twinshore-scout", CLIENTS),
    "LOOKS_CLIENT_ID": ("twinshore-looks", CLIENTS),
    "FIRST_CLIENT_ID": ("twinshore-first", CLIENTS),
    "PLAN_CLIENT_ID": ("twinshore-plan", CLIENTS),
    "WORD_CLIENT_ID": ("twinshore-word", CLIENTS),
    "LINK_CLIENT_ID": ("twinshore-link", CLIENTS),
    "SWITCH_CLIENT_ID": ("twinshore-switch", CLIENTS),
    "PROXY_CLIENT_ID": ("twinshore-proxy", CLIENTS),
    "PROOF_CLIENT_ID": ("twinshore-proof", CLIENTS),
    "DELAY_CLIENT_ID": ("twinshore-delay", CLIENTS),
    "STATUS_CLIENT_ID": ("twinshore-status", CLIENTS),
    "ADVISE_CLIENT_ID": ("twinshore-advise", CLIENTS),
    "AUDIT_CLIENT_ID": ("twinshore-conduct", CLIENTS),
    "FOLLOWER_CLIENT_ID_PREFIX": ("follower-", CLIENTS),
    "ENDS_CLIENT_ID_PREFIX": ("ends-", CLIENTS),
    "SOFTWARE_NAME": ("twinshore", CLIENTS),
    "PROXY_SOFTWARE_NAME": ("twinshore-proxy", CLIENTS),
    "TRANSACTIONAL_ID_PREFIX": ("twinshore.", TRANSACTIONS),
    "LOOKS_GROUP_ID": ("twinshore-looks", GROUPS),
    "COMMIT_MARK": ("twinshore+++", MARKS),
    "CALL_HEADER": ("twinshore-call", HEADERS),
    "RESCUED_HEADER": (b"twinshore-rescued", HEADERS),
    "CLUSTER_ID_SETTING": ("twinshore.cluster.id", SETTINGS),
    "CLIENT_SETTINGS_PREFIX": ("twinshore.", SETTINGS),
    "APOLLO_KEY": ("twinshore.clients", SETTINGS),
    "PROXY_CLUSTER_ID": ("twinshore", CLUSTER),
    "PUSH_PATH": ("/v1/apps/{app}/push", PATHS),
    "HEALTH_PATH": ("/health", PATHS),
    "METRICS_PATH": ("/metrics", PATHS),
    "PUSH_HEAD": ("twinshore push 1", FILES),
    "SPOOL_VERSION": (1, FILES),
    "SPOOL_SEGMENT_MAGIC": (b"TWSPOOL\n", FILES),
    "SPOOL_FRAME_MAGIC": (b"\xf5SPR", FILES),
    "SPOOL_SEGMENT_ENDING": (".spool", FILES),
    "SPOOL_LOCK_FILE": ("lock", FILES),
    "SPOOL_MARKS_FILE": ("done", FILES),
    "SPOOL_HOMES_FILE": ("homes", FILES),
    "RESCUED_KEY": ("twinshore", FILES),
    "RESCUED_WHAT": ("rescued tail", FILES),
    "RESCUED_VERSION": (1, FILES),
}

# The values of lines: a reader of version 1 looks for these, in every language.
VALUES = {
    "home, moved": "home cluster_id term step state switch source since_ms set_by pair link back source_topic_id "
    "target_topic_id how points",
    "home, held": "home cluster_id term step state switch source since_ms set_by pair link back source_topic_id "
    "target_topic_id how points hold_ms",
    "claim of a topic": "since_ms by",
    "switch, head": "digest parts after",
    "follower": "name topics heard parked lease_ms said busy",
    "claim of a link": "store host since_ms",
    "writer of a link": "store producer_id producer_epoch target_cluster_id process generation",
    "twin": "source target mapped runs",
    "heartbeat": "link source target at_ms",
    "rescued, head": "twinshore version switch cluster home topic topic_id partition first end",
    "rescued, record 0": "offset timestamp key value headers fate",
    "rescued, last": "records committed",
}


@pytest.mark.claim("nouns", "frozen", FROZEN)
def test_each_name_is_what_it_always_was() -> None:
    names = {name: value for name, value in vars(frozen).items() if name.isupper()}
    assert names == {name: value for name, (value, _) in NAMES.items()}
    assert [name for name, (_, why) in NAMES.items() if not why.endswith(".")] == [], "each says why it must not change"


@pytest.mark.claim("nouns", "frozen", FROZEN)
def test_the_values_of_lines_have_these_keys() -> None:
    lines = {one["name"]: list(json.loads(one["value"])) for one in json.loads(SAMPLES.read_text(encoding="utf-8"))}
    assert {name: lines[name] for name in VALUES} == {name: keys.split() for name, keys in VALUES.items()}


def test_transactional_ids_begin_with_the_link_and_its_producer_id() -> None:
    assert transactional_id_prefix("east->west", 4711) == "twinshore.east->west.4711."


def test_a_guard_is_known_by_what_it_denies_and_bears_no_mark() -> None:
    """Rules of Kafka have no room for one: a guard that was put up by an earlier version is found by these fields."""
    topic, literal, write, deny = 2, 3, 4, 2
    assert write_denied_to("User:shop", "orders") == Acl(topic, "orders", literal, "User:shop", "*", write, deny)
    assert (ANY_USER, WILDCARD) == ("User:*", "*")


@pytest.mark.parametrize("room", ["clients/java/src", "clients/cpp"])
def test_the_clients_in_other_languages_call_them_the_same(room: str) -> None:
    kinds = {".java", ".cpp", ".hpp"}
    text = "".join(path.read_text() for path in sorted((ROOT / room).rglob("*")) if path.suffix in kinds)
    spoken = set(re.findall(r'"(twinshore\.[a-z.]+)"', text))
    assert spoken - {"twinshore."} == {frozen.HOMES_TOPIC, frozen.FOLLOWERS_TOPIC, frozen.CLUSTER_ID_SETTING}


def test_no_name_stands_twice_in_the_code() -> None:
    """But in sentences. Short words are the names of other things as well."""
    own = [value for value, _ in NAMES.values() if isinstance(value, str) and "twinshore" in value and len(value) > 10]
    quoted = re.compile("|".join(f"[\"']{re.escape(one)}[\"']" for one in sorted(set(own))))
    places = []
    for path in sorted((ROOT / "src" / "twinshore").rglob("*.py")):
        if path.name != "frozen.py" and "lab" not in path.parts:
            places += [f"{path.name}: {found}" for found in quoted.findall(path.read_text())]
    assert places == [
        'delay.py: "twinshore-delay"',  # a folder's name, which the user sets
    ]
