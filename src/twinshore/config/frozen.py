"""Names that other systems hold: they stand on clusters, in quotas, rights and files of whoever runs Twinshore. Pure.

No release changes one of them. Another form of a line on a cluster is another `LINE_VERSION`, and one of a file another
version of that file. tests/config/test_frozen_names.py has each once more, and says why it stays.
"""

from __future__ import annotations

from typing import Final

# Topics on clusters.
OWN_PREFIX: Final = "twinshore."
# Where each link says that it runs; crosses under the source's name whatever the naming.
HEARTBEATS: Final = "twinshore.heartbeats"
# Where each target says which of its topics are twins.
TWINS_TOPIC: Final = "twinshore.twins"
# Where each cluster says where topics are at home, and where clients say that they follow it.
HOMES_TOPIC: Final = "twinshore.homes"
FOLLOWERS_TOPIC: Final = "twinshore.followers"
# Where the home of a topic keeps the records that an old home took and never sent.
RESCUED_TOPIC: Final = "twinshore.rescued"
NOTES_TOPICS: Final = (TWINS_TOPIC, HOMES_TOPIC, FOLLOWERS_TOPIC, RESCUED_TOPIC)
# What has a home as topics have: all groups of the clients of proxies. No topic is called so.
GROUPS_HOME: Final = "twinshore.groups"
# No topic is called so: whether a right is there is asked by it.
NOWHERE_TOPIC: Final = "twinshore.nowhere"

# What the keys of lines begin with. Keys have one form in every version: whom a line speaks of can always be read.
HOME_LINE: Final = "home"
CLAIM_LINE: Final = "claim"
SWITCH_LINE: Final = "switch"
PART_LINE: Final = "part"
FOLLOWER_LINE: Final = "follower"
LINK_LINE: Final = "link"
TWIN_LINE: Final = "twin"
# The version of a line stands under this key of its value. A line without it is of version 1.
LINE_VERSION_KEY: Final = "v"
LINE_VERSION: Final = 1

# Ids of clients: operators give them quotas, and find them in the logs of brokers.
CLIENT_ID: Final = "twinshore"
PUMP_CLIENT_ID: Final = "twinshore-pump"
UNITS_CLIENT_ID: Final = "twinshore-units"
SCOUT_CLIENT_ID: Final = "twinshore-scout"
LOOKS_CLIENT_ID: Final = "twinshore-looks"
FIRST_CLIENT_ID: Final = "twinshore-first"
PLAN_CLIENT_ID: Final = "twinshore-plan"
WORD_CLIENT_ID: Final = "twinshore-word"
LINK_CLIENT_ID: Final = "twinshore-link"
SWITCH_CLIENT_ID: Final = "twinshore-switch"
PROXY_CLIENT_ID: Final = "twinshore-proxy"
PROOF_CLIENT_ID: Final = "twinshore-proof"
DELAY_CLIENT_ID: Final = "twinshore-delay"
STATUS_CLIENT_ID: Final = "twinshore-status"
ADVISE_CLIENT_ID: Final = "twinshore-advise"
CONDUCT_CLIENT_ID: Final = "twinshore-conduct"
# Of the client library: the application's name stands behind.
FOLLOWER_CLIENT_ID_PREFIX: Final = "follower-"
ENDS_CLIENT_ID_PREFIX: Final = "ends-"
# As brokers are told who speaks to them.
SOFTWARE_NAME: Final = "twinshore"
PROXY_SOFTWARE_NAME: Final = "twinshore-proxy"

# Behind it stand the link's name and its producer id, with a dot behind each.
TRANSACTIONAL_ID_PREFIX: Final = "twinshore."
LOOKS_GROUP_ID: Final = "twinshore-looks"
# What a link leaves beside a place whose consumer left nothing there, so that its own places are known on the target
# itself, whatever store or process is gone. It is base64 of a version that Kafka Streams takes for none of its own.
COMMIT_MARK: Final = "twinshore+++"
# Headers of records.
CALL_HEADER: Final = "twinshore-call"
RESCUED_HEADER: Final = b"twinshore-rescued"

# What applications set.
CLUSTER_ID_SETTING: Final = "twinshore.cluster.id"
CLIENT_SETTINGS_PREFIX: Final = "twinshore."
APOLLO_KEY: Final = "twinshore.clients"
# The id of the one cluster that a proxy's clients see, where none is set.
PROXY_CLUSTER_ID: Final = "twinshore"

# Of the config service.
PUSH_PATH: Final = "/v1/apps/{app}/push"
HEALTH_PATH: Final = "/health"
METRICS_PATH: Final = "/metrics"

# The first line of a file that keeps a push, or where topics were at home; the checksum stands behind.
PUSH_HEAD: Final = "twinshore push 1"

# A spool's folder.
SPOOL_VERSION: Final = 1
SPOOL_SEGMENT_MAGIC: Final = b"TWSPOOL\n"
SPOOL_FRAME_MAGIC: Final = b"\xf5SPR"
SPOOL_SEGMENT_ENDING: Final = ".spool"
SPOOL_LOCK_FILE: Final = "lock"
SPOOL_MARKS_FILE: Final = "done"
SPOOL_HOMES_FILE: Final = "homes"

# A file of rescued records, and the first line of its copy on a cluster.
RESCUED_KEY: Final = "twinshore"
RESCUED_WHAT: Final = "rescued tail"
RESCUED_VERSION: Final = 1
