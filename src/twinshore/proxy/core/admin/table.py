"""Which rule is whose. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from twinshore.proxy.core.admin import configs, first, nodes, topics
from twinshore.proxy.core.admin.ends import Ends
from twinshore.proxy.core.admin.refusals import REFUSED, refused
from twinshore.proxy.core.admin.versions import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    OFFSET_DELETE,
)
from twinshore.proxy.core.committed import Committed
from twinshore.proxy.core.layout import Layout, Place
from twinshore.proxy.core.moves import Move, Say
from twinshore.proxy.core.partition_questions import about_partitions
from twinshore.proxy.core.seen import Seen
from twinshore.wire.apis import DESCRIBE_CONFIGS, DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS
from twinshore.wire.serving.requests import Request

Judge: TypeAlias = Callable[[Request, Place | None, Seen], Move]


def judges(layout: Layout, committed: Committed, news: Callable[[], None]) -> Mapping[int, Judge]:
    """Those of admin requests, for one client."""
    ends = Ends(committed)
    found: dict[int, Judge] = {
        CREATE_TOPICS: lambda request, _, seen: topics.create_topics(request, layout, seen, news),
        DELETE_TOPICS: lambda request, _, seen: topics.delete_topics(request, layout, seen, news),
        CREATE_PARTITIONS: lambda request, _, seen: topics.create_partitions(request, layout, seen),
        LIST_PARTITION_REASSIGNMENTS: lambda request, _, seen: first.list_reassignments(request, layout, seen),
        DELETE_RECORDS: about_partitions,
        DESCRIBE_PRODUCERS: about_partitions,
        DESCRIBE_LOG_DIRS: nodes.log_folders,
        LIST_TRANSACTIONS: nodes.transactions,
        DESCRIBE_TRANSACTIONS: nodes.described,
        DELETE_GROUPS: ends.delete_groups,
        OFFSET_DELETE: ends.delete_places,
    }
    for key in (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS):
        found[key] = lambda request, _, seen: configs.configs(request, layout, seen)
    for key in (DESCRIBE_ACLS, DESCRIBE_CLIENT_QUOTAS):
        found[key] = lambda request, _, seen: first.of_first(request, seen)
    return found | dict.fromkeys(REFUSED, lambda request, _, __: Say(refused(request)))
