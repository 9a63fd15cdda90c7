"""Names that other systems hold: in topics, quotas, ACLs and files of operators. Pure.

No release changes one of them. A new form of a record gets a new `LINE_VERSION`; a new form of a file gets a new
version of that file. tests/config/test_frozen_names.py repeats each name and says why it stays.
"""

from __future__ import annotations

from typing import Final

# Topics on clusters.
OWN_PREFIX: Final[str] = "twinshore."
# Where each link says that it runs; crosses under the source's name whatever the naming.
HEARTBEATS: Final[str] = "twinshore.heartbeats"
# Where each target says which of its topics are twins.
TWINS_TOPIC: Final[str] = "twinshore.twins"
# Where each cluster says where topics are at home, and where clients say that they follow it.
HOMES_TOPIC: Final[str] = "twinshore.homes"
FOLLOWERS_TOPIC: Final[str] = "twinshore.followers"
# Where the home of a topic keeps the records that an old home took and never sent.
RESCUED_TOPIC: Final[str] = "twinshore.rescued"
# Where each cluster says which topics are protected and how far mirrors are, and where gates say what they confirmed.
PROTECTION_TOPIC: Final[str] = "twinshore.protection"
GATES_TOPIC: Final[str] = "twinshore.gates"
NOTES_TOPICS: Final = (TWINS_TOPIC, HOMES_TOPIC, FOLLOWERS_TOPIC, RESCUED_TOPIC, PROTECTION_TOPIC, GATES_TOPIC)
# What has a home as topics have: all groups of the clients of proxies. No topic is called so.
GROUPS_HOME: Final[str] = "twinshore.groups"
# No topic is called so: whether a right is there is asked by it.
NOWHERE_TOPIC: Final[str] = "twinshore.nowhere"

# What the keys of lines begin with. Keys have one form in every version: whom a line speaks of can always be read.
HOME_LINE: Final[str] = "home"
CLAIM_LINE: Final[str] = "claim"
SWITCH_LINE: Final[str] = "switch"
PART_LINE: Final[str] = "part"
FOLLOWER_LINE: Final[str] = "follower"
LINK_LINE: Final[str] = "link"
TWIN_LINE: Final[str] = "twin"
LEVEL_LINE: Final[str] = "level"
REACHED_LINE: Final[str] = "reached"
GATE_LINE: Final[str] = "gate"
PROMOTED_LINE: Final[str] = "promoted"
# The version of a line stands under this key of its value. A line without it is of version 1.
LINE_VERSION_KEY: Final[str] = "v"
LINE_VERSION: Final[int] = 1

# Ids of clients: operators give them quotas, and find them in the logs of brokers.
CLIENT_ID: Final[str] = "twinshore"
TASK_CLIENT_ID: Final[str] = "twinshore-pump"
UNITS_CLIENT_ID: Final[str] = "twinshore-units"
SCOUT_CLIENT_ID: Final[str] = "twinshore-scout"
LOOKS_CLIENT_ID: Final[str] = "twinshore-looks"
FIRST_CLIENT_ID: Final[str] = "twinshore-first"
PLAN_CLIENT_ID: Final[str] = "twinshore-plan"
WORD_CLIENT_ID: Final[str] = "twinshore-word"
LINK_CLIENT_ID: Final[str] = "twinshore-link"
SWITCH_CLIENT_ID: Final[str] = "twinshore-switch"
PROXY_CLIENT_ID: Final[str] = "twinshore-proxy"
PROOF_CLIENT_ID: Final[str] = "twinshore-proof"
DELAY_CLIENT_ID: Final[str] = "twinshore-delay"
STATUS_CLIENT_ID: Final[str] = "twinshore-status"
ADVISE_CLIENT_ID: Final[str] = "twinshore-advise"
AUDIT_CLIENT_ID: Final[str] = "twinshore-conduct"
# Of the client library: the application's name stands behind.
FOLLOWER_CLIENT_ID_PREFIX: Final[str] = "follower-"
ENDS_CLIENT_ID_PREFIX: Final[str] = "ends-"
# As brokers are told who speaks to them.
SOFTWARE_NAME: Final[str] = "twinshore"
PROXY_SOFTWARE_NAME: Final[str] = "twinshore-proxy"

# Behind it stand the link's name and its producer id, with a dot behind each.
TRANSACTIONAL_ID_PREFIX: Final[str] = "twinshore."
LOOKS_GROUP_ID: Final[str] = "twinshore-looks"
# What a link leaves beside a place whose consumer left nothing there, so that its own places are known on the target
# itself, whatever store or process is gone. It is base64 of a version that Kafka Streams takes for none of its own.
COMMIT_MARK: Final[str] = "twinshore+++"
# Headers of records.
CALL_HEADER: Final[str] = "twinshore-call"
RESCUED_HEADER: Final[bytes] = b"twinshore-rescued"

# What applications set.
CLUSTER_ID_SETTING: Final[str] = "twinshore.cluster.id"
CLIENT_SETTINGS_PREFIX: Final[str] = "twinshore."
APOLLO_KEY: Final[str] = "twinshore.clients"
# The id of the one cluster that a proxy's clients see, where none is set.
PROXY_CLUSTER_ID: Final[str] = "twinshore"

# Of the config service.
PUSH_PATH: Final[str] = "/v1/apps/{app}/push"
HEALTH_PATH: Final[str] = "/health"
METRICS_PATH: Final[str] = "/metrics"

# The first line of a file that keeps a push, or where topics were at home; the checksum stands behind.
PUSH_HEAD: Final[str] = "twinshore push 1"

# A spool's folder.
SPOOL_VERSION: Final[int] = 1
SPOOL_SEGMENT_MAGIC: Final[bytes] = b"TWSPOOL\n"
SPOOL_FRAME_MAGIC: Final[bytes] = b"\xf5SPR"
SPOOL_SEGMENT_ENDING: Final[str] = ".spool"
SPOOL_LOCK_FILE: Final[str] = "lock"
SPOOL_MARKS_FILE: Final[str] = "done"
SPOOL_HOMES_FILE: Final[str] = "homes"

# A file of rescued records, and the first line of its copy on a cluster.
RESCUED_KEY: Final[str] = "twinshore"
RESCUED_WHAT: Final[str] = "rescued tail"
RESCUED_VERSION: Final[int] = 1
