"""How long the target's brokers remember a producer that writes nothing: belt 2 holds no longer than that."""

from __future__ import annotations

from twinshore.fleet import KafkaError
from twinshore.kafka.cluster import KafkaCluster
from twinshore.kafka.errors import Code

SETTING = "producer.id.expiration.ms"
STATE_EXPIRY_MS_DEFAULT = 86_400_000
# Where it is not ours to know: believe in nothing, send one batch at a time where data is older than this.
STATE_EXPIRY_MS_UNKNOWN = 60_000


def state_expiry_ms(target: KafkaCluster) -> int:
    """As each broker has it now; the shortest counts."""
    found = STATE_EXPIRY_MS_DEFAULT
    for node in target.metadata([], refresh=True).brokers:
        try:
            setting = target.admin.broker_settings(node).get(SETTING)
        except KafkaError as error:
            if error.code not in (Code.CLUSTER_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED):
                raise
            return min(found, STATE_EXPIRY_MS_UNKNOWN)
        if setting and setting.value:
            found = min(found, int(setting.value))
    return found
