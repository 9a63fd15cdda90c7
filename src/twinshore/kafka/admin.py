"""Topics and their settings, through confluent-kafka. Its exceptions end here."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not re-export what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from twinshore.fleet import Cluster, KafkaError, NamedPartition
from twinshore.kafka.client_settings import changed_files, client_settings
from twinshore.kafka.errors import Code, kafka_error

TIMEOUT_S = 30.0
_LOCAL_ERRORS_BELOW = -1


@dataclass(frozen=True, slots=True)
class Setting:
    """`value` is None for a secret. `source` is Kafka's name for where it was set."""

    name: str
    value: str | None
    source: str
    sensitive: bool
    read_only: bool

    @property
    def own(self) -> bool:
        """Set on the topic itself."""
        return self.source == "DYNAMIC_TOPIC_CONFIG"


class Admin:
    """Safe for several threads. Rotated secrets and certificates count at the next call."""

    def __init__(self, cluster: Cluster, *, timeout_s: float = TIMEOUT_S) -> None:
        self._cluster = cluster
        self._name = cluster.name
        self._timeout_s = timeout_s
        self._guard = threading.Lock()
        # What it was made from holds secrets, so only whether that is still the same is kept.
        self._key = secrets.token_bytes(32)
        self._made: tuple[bytes, AdminClient] | None = None
        self._reasons: list[str] = []

    def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int = -1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """`replication_factor` -1 takes the cluster's default. `validate_only` asks whether it would be accepted."""
        topic = NewTopic(name, partitions, replication_factor, config=dict(settings or {}))
        asked = self._client().create_topics([topic], validate_only=validate_only, **self._times())
        self._wait(asked[name], f"create topic {name}", right=f"Create on topic {name} or on the cluster")

    def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Grows the topic to `total` partitions."""
        asked = self._client().create_partitions(
            [NewPartitions(name, total)], validate_only=validate_only, **self._times()
        )
        self._wait(asked[name], f"grow topic {name} to {total} partitions", right=f"Alter on topic {name}")

    def delete_topics(self, names: Iterable[str]) -> None:
        """Deletes them all; the first refusal is raised after every deletion was answered."""
        wanted = list(names)
        if not wanted:
            return
        asked = self._client().delete_topics(wanted, **self._times())
        self._wait_all({name: (asked[name], f"delete topic {name}", f"Delete on topic {name}") for name in wanted})

    def topic_settings(self, names: Iterable[str]) -> dict[str, dict[str, Setting]]:
        """The settings of each topic that are not Kafka's own defaults."""
        return self._describe("topic", list(names))

    def broker_settings(self, node_id: int) -> dict[str, Setting]:
        """The settings of a broker that are not Kafka's own defaults."""
        return self._describe("broker", [str(node_id)])[str(node_id)]

    def alter_topic_settings(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes these settings alone; None takes one back to its default."""
        if not changes:
            return
        entries = [
            ConfigEntry(
                key,
                "" if value is None else value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        asked = self._client().incremental_alter_configs(
            [resource], validate_only=validate_only, request_timeout=self._timeout_s
        )
        (answer,) = asked.values()
        self._wait(answer, f"change settings of topic {name}", right=f"AlterConfigs on topic {name}")

    def delete_records(self, before: Mapping[NamedPartition, int]) -> dict[NamedPartition, int]:
        """Cuts each log below the offset; returns the new log starts."""
        if not before:
            return {}
        wanted = [TopicPartition(named.topic, named.partition, offset) for named, offset in before.items()]
        asked = self._client().delete_records(wanted, **self._times())
        done = self._wait_all(
            {
                NamedPartition(part.topic, part.partition): (
                    answer,
                    f"delete records of {part.topic}-{part.partition}",
                    f"Delete on topic {part.topic}",
                )
                for part, answer in asked.items()
            }
        )
        return {named: int(deleted.low_watermark) for named, deleted in done.items()}

    def _describe(self, kind: str, names: list[str]) -> dict[str, dict[str, Setting]]:
        if not names:
            return {}
        kinds = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER}
        resources = [ConfigResource(kinds[kind], name) for name in names]
        asked = self._client().describe_configs(resources, request_timeout=self._timeout_s)
        where = {"topic": "topic {}", "broker": "the cluster"}[kind]
        done = self._wait_all(
            {
                resource.name: (
                    answer,
                    f"read settings of {kind} {resource.name}",
                    f"DescribeConfigs on {where.format(resource.name)}",
                )
                for resource, answer in asked.items()
            }
        )
        default = ConfigSource.DEFAULT_CONFIG
        return {
            name: {
                entry.name: Setting(
                    entry.name, entry.value, ConfigSource(entry.source).name, entry.is_sensitive, entry.is_read_only
                )
                for entry in entries.values()
                if ConfigSource(entry.source) is not default
            }
            for name, entries in done.items()
        }

    def _client(self) -> AdminClient:
        settings = client_settings(self._cluster)
        plain = sorted((key, value) for key, value in settings.items() if not callable(value))
        told = repr((plain, changed_files(self._cluster))).encode()
        mark = hashlib.blake2b(told, key=self._key).digest()
        with self._guard:
            if self._made is None or self._made[0] != mark:
                quiet: dict[str, Any] = {"log_level": 0, "client.id": "twinshore-admin", "error_cb": self._hear}
                try:
                    client = AdminClient({**settings, **quiet})
                except KafkaException as error:
                    raise KafkaError(f"{self._name}: no admin client: {error.args[0].str()}") from error
                self._made = (mark, client)
            client = self._made[1]
            # librdkafka hands a token over, and tells why it cannot connect, only when polled.
            client.poll(0)
            return client

    def _hear(self, error: Any) -> None:
        self._reasons = [*self._reasons[-4:], str(error.str())]

    def _times(self) -> dict[str, float]:
        return {"operation_timeout": self._timeout_s * 0.8, "request_timeout": self._timeout_s}

    def _wait_all(self, asked: Mapping[Any, tuple[Future[Any], str, str]]) -> dict[Any, Any]:
        done: dict[Any, Any] = {}
        failed: KafkaError | None = None
        for key, (answer, what, right) in asked.items():
            try:
                done[key] = self._wait(answer, what, right=right)
            except KafkaError as error:
                failed = failed or error
        if failed:
            raise failed
        return done

    def _wait(self, answer: Future[Any], what: str, *, right: str) -> Any:
        try:
            return answer.result(timeout=self._timeout_s + 10)
        except KafkaException as error:
            raise self._turn(error.args[0], what, right) from error
        except TimeoutError as error:
            raise KafkaError(f"{self._name}: {what}: no answer in time", retriable=True) from error

    def _turn(self, error: Any, what: str, right: str) -> KafkaError:
        code, said = int(error.code()), str(error.str())
        if code >= _LOCAL_ERRORS_BELOW:
            return kafka_error(code, f"{self._name}: {what}", detail=said, right=right)
        if self._made is not None:
            self._made[1].poll(0)
        reason = f"; {self._reasons[-1]}" if self._reasons else ""
        return KafkaError(f"{self._name}: {what}: {said}{reason}", code=Code.NONE, retriable=True)
