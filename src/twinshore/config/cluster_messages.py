"""The texts of errors that concern settings, clusters, the store, reports, the lab and the command line."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """What happened and where; and what to do."""

    text: str
    hint: str = ""


CLUSTER_MESSAGES = {
    # config
    "config.file-not-text": Message("{path} is not UTF-8 text, at byte {byte}"),
    "config.invalid-pattern": Message("{option}: {cause}"),
    "config.invalid-settings": Message("{faults}", "docs/settings.md lists every setting"),
    "config.missing-property": Message("{path}: {place}: {key} is missing{near}"),
    "config.no-clusters-property": Message(
        "{path}: no property `clusters`{near}",
        "this reads the properties of connect-mirror-maker.sh, or JSON of MirrorSourceConnector",
    ),
    "config.no-link-enabled": Message("{path}: no link is enabled", "MirrorMaker 2 replicates only with {properties}"),
    "config.no-links": Message("the settings have no link", 'add one: [links."east->west"]'),
    "config.no-properties": Message(
        "{path} has no properties", "name the file that connect-mirror-maker.sh is started with"
    ),
    "config.not-a-connector": Message("{path}: connector {number} is not a table of properties"),
    "config.not-json": Message("{path}, line {line}: this is not JSON: {cause}"),
    "config.not-toml": Message("{path} is not TOML: {cause}"),
    "config.property-without-name": Message("{path}, line {line}: a property without a name: {text!r}"),
    "config.secret-not-set": Message("environment variable {variable} is not set", "set it to the secret"),
    "config.several-links": Message("there are {count} links: {links}", "choose one with --link"),
    "config.unknown-choice": Message("--{option} is {value!r}{near}"),
    "config.unknown-cluster": Message("no cluster {cluster!r} in the settings{near}"),
    "config.unknown-cluster-in-property": Message("{path}, {place}: {key}: no cluster {cluster}{near}"),
    "config.unknown-connector": Message("{path}: {connector}: {kind!r} is not a connector of MirrorMaker 2{near}"),
    "config.unknown-link": Message("no link {link!r} in the settings{near}"),
    "config.unreadable-file": Message("{path} cannot be read: {cause}"),
    "config.unreadable-secret": Message("secret file {path} cannot be read: {cause}"),
    "config.unreadable-settings": Message(
        "settings file {path} cannot be read: {cause}", "name another with --settings"
    ),
    "config.webhook-not-url": Message(
        "{place} does not contain a URL such as https://host/path", "write the URL that alarms are sent to"
    ),
    # kafka
    "kafka.invalid-address": Message("cluster {cluster}: bootstrap address {address!r} is not host:port"),
    "kafka.invalid-scram-keys": Message("the SCRAM keys {fault}"),
    "kafka.invalid-token-url": Message("token_url {url} is not a URL with http or https"),
    "kafka.key-without-certificate": Message("key_file is set but cert_file is not", "a client certificate needs both"),
    "kafka.no-address": Message("cluster {cluster} has no bootstrap address"),
    "kafka.no-username": Message("SASL {mechanism} needs a username"),
    "kafka.not-a-file": Message("{setting} {path} is not a file", "name a file with PEM text"),
    "kafka.unknown-topic": Message("no topic {topic} on {clusters}, or no right to describe it{near}"),
    "kafka.unreadable-token-file": Message("token_file {path} cannot be read: {cause}"),
    "kafka.unusable-ca-file": Message("ca_file {path} has no usable certificate: {cause}"),
    "kafka.unusable-certificate": Message(
        "cert_file {cert_file} with key_file {key_file} cannot be used: {cause}",
        "do certificate and key belong together, and is the password right?",
    ),
    # routing
    "routing.newer-home": Message(
        "{place}: a newer version (v {version}) wrote the record of topic {topic}'s home, which this one cannot read",
        "run the version that wrote it; if none did, delete the record: write its key with no value",
    ),
    "routing.switch-newer": Message(
        "a newer version of Twinshore continues switch {switch}, as {cluster} says",
        "continue the switch with that version",
    ),
    "routing.switch-taken": Message(
        "another process continues switch {switch}, as {cluster} says",
        "`twinshore switch status` shows it, once the store answers",
    ),
    # state
    "state.access-denied": Message("the store {place}: {cause}", "see [store] url and password_env or password_file"),
    "state.cannot-open": Message("the store {place}: {cause}", "make {folder} a folder this user can write"),
    "state.cannot-write": Message(
        "the store {place} cannot be written{free}; no transaction was written in part",
        "check the disk under {folder}: space, quota, health",
    ),
    "state.corrupt": Message(
        "the store {place} is not a whole SQLite database: {cause}",
        "put a copy of it back, or name another file in [store] url",
    ),
    "state.file-replaced": Message(
        "the store {path} was deleted, moved or replaced while it was in use",
        "put the file back; or stop all that use it, put a copy there, and start them again",
    ),
    "state.full": Message(
        "the store {place} has no space left{free}; no transaction was written in part",
        "free space on {disk}; the mirror goes on by itself",
    ),
    "state.in-memory": Message("a store in memory is lost with the process", "name a file: sqlite:///twinshore.db"),
    "state.invalid-row": Message("the store's table {place}: {cause}", "which program wrote this row?"),
    "state.invalid-url": Message(
        "the store's URL cannot be read", "write sqlite:///file, postgresql://user@host/db or mysql://user@host/db"
    ),
    "state.link-removed": Message(
        "{links}: the link was removed or turned, so it creates no twin", "its mirror ends it by itself, within seconds"
    ),
    "state.locked": Message("another process has locked the store {place}", "find the process that has the file open"),
    "state.naming-changed": Message(
        "{links}: the link has another naming now, so it creates no twin under the old one",
        "its mirror takes the new naming by itself, within seconds",
    ),
    "state.no-answer": Message("the store {place} has not answered within {seconds:g} s"),
    "state.no-database-name": Message("the store's URL {url} names no database", "write it after the host: /name"),
    "state.no-password": Message(
        "the password of the store {place} cannot be read: {cause}",
        "see [store] password_env or password_file; each new connection reads the password again",
    ),
    "state.no-store": Message(
        "there is no store at {place}: no mirror has run with these settings here",
        "start one with `twinshore mirror run`, or name its settings with --settings",
    ),
    "state.other-schema": Message(
        "the store {place} has schema {found}, and this version needs {needed}",
        "use the version that made it, or begin a new store: `twinshore link recover` finds the twins again",
    ),
    "state.progress-refused": Message(
        "progress does not follow the stored positions, which another process has changed: {ranges}",
        "check that one mirror runs this link, with this store",
    ),
    "state.read-only": Message("the store {place} is read-only", "give this user the right to write it and its folder"),
    "state.row-deleted-again": Message(
        "other processes delete {row} as often as this one adds it", "which other process uses this store?"
    ),
    "state.row-refused": Message("the store {place} refused a row: {cause}"),
    "state.schema-locked": Message("another process has been changing the store's tables for {seconds} s", "try again"),
    "state.unknown-database": Message("{database!r} is not a supported database", "known: {known}"),
    "state.unusable": Message(
        "the store {place} cannot be used: {cause}", "is the database up, and [store] url right?"
    ),
    # runtime
    "runtime.cannot-listen": Message(
        "[{section}] {settings}: {address} cannot be served: {cause}", "choose a free port"
    ),
    "runtime.lease-taken": Message("{thing} is being worked on by another process: {holder}"),
    "runtime.no-java": Message(
        "Spark needs Java: {cause}", "install a Java runtime of version 17 or newer, or point JAVA_HOME at one"
    ),
    "runtime.no-spark": Message(
        "Spark does not start {place}: {cause}",
        "is Java 17 or newer there, and is {section} right, its master up, its workers able to run Python?",
    ),
    "runtime.other-clusters": Message(
        "link {link} was between clusters {before}, the addresses now lead to {now}",
        "check the bootstrap addresses; for other clusters give the link another store or name",
    ),
    "runtime.same-cluster": Message(
        "link {link}: {source} and {target} are the same cluster ({cluster_id})",
        "check the bootstrap addresses of both clusters",
    ),
    # groups
    "groups.no-offsets": Message("no committed offsets of group {group} in the topics of these links"),
    "groups.not-an-offset": Message("{text!r} is not an offset", "leave --topic out to translate a group"),
    "groups.unknown-partition": Message("link {link} has no partition {partition} on {cluster}"),
    # proof
    "proof.log-ended-early": Message("a log ended before the end of the range that was to be compared"),
    "proof.no-common-start": Message(
        "{partition}: the first {records} records of both sides have none in common",
        "was the target filled by another tool, or has one side lost its start to retention?",
    ),
    "proof.no-twin": Message(
        "no link has a twin of topic {topic}", "name the source's topic; `twinshore status --topics`"
    ),
    "proof.sample-with-behind-max": Message(
        "--behind-max does not apply to a sample", "leave out --sample or --behind-max"
    ),
    "proof.throttle-too-low": Message("--throttle: {cause}"),
    "proof.too-many-open-keys": Message(
        "more than {keys} keys have their latest record on one side only, far into the log",
        "let both cleaners finish, or compare again later",
    ),
    # monitoring
    "monitoring.no-store": Message(
        "there is no store at {place}: no monitor has run with these settings here",
        "start `twinshore delay watch`, or name its settings with --settings",
    ),
    "monitoring.unknown-item": Message("no item {item!r}", "known: {known}"),
    "monitoring.unknown-monitor": Message("no monitor {monitor!r} runs or is missed", "known: {known}"),
    "monitoring.unknown-topic": Message("topic {topic} is not monitored{near}"),
    # advisor
    "advisor.elr-with-high-watermark": Message(
        "no Kafka has eligible leader replicas and truncates by the high watermark"
    ),
    "advisor.fix-refused": Message("topic {topic}: {cause}; its settings were not changed", "run the command again"),
    "advisor.idempotence-needs-acks": Message(
        "an idempotent producer needs acks=all and retries", "add --no-idempotence"
    ),
    "advisor.invalid-policy": Message("policy {policy}: {faults}"),
    "advisor.no-store": Message(
        "there is no store at {place}: no proxy has reported anything here",
        "name the proxies' settings with --settings",
    ),
    "advisor.no-topic-matches": Message(
        "--topic {pattern}: no topic of {cluster} matches",
        "it is a regular expression for the whole name, such as orders or orders.*",
    ),
    "advisor.not-advice": Message("{path} is not output of `twinshore advise --json`: {cause}"),
    "advisor.other-cluster": Message("{path} is about another cluster: {found}, this one is {cluster_id}"),
    "advisor.other-version": Message(
        "{path} was written by another version of Twinshore", "write it again with --json"
    ),
    "advisor.out-of-range": Message("--{option} is {value}, not {least} to {most}"),
    "advisor.reset-without-commit": Message("--reset applies to a consumer", "say with --commit how it commits"),
    "advisor.settings-not-read": Message(
        "the settings of topic {topic} could not be read: {cause}", "ask as a user with DescribeConfigs on the topic"
    ),
    "advisor.several-clusters": Message("there are {count} clusters: {clusters}", "choose one with --cluster"),
    "advisor.too-many-replicas": Message("topic {topic} has {replicas} replicas; the model takes {most} at most"),
    "advisor.topic-changed": Message(
        "topic {topic}: another process changed its settings at the same time: {found}, before {before}; this "
        "command did not change them",
        "run the command again",
    ),
    "advisor.unknown-story": Message("no story {story!r}{near}", "`twinshore simulate story` lists them"),
    "advisor.version-not-read": Message(
        "topic {topic} has a min.insync.replicas above its replicas, whose effect depends on the brokers' "
        "version, and {what} could not be read: {cause}"
    ),
    # lab
    "lab.already-up": Message(
        "cluster {cluster} is up already, with Kafka {version} and {brokers} brokers",
        "`twinshore lab down`, then up again",
    ),
    "lab.broker-count": Message("a lab cluster has 1 or 3 brokers, not {brokers}"),
    "lab.brokers-not-seen": Message("cluster {cluster}: after {seconds:.0f} s the broker at {address} shows {shown}"),
    "lab.cannot-fetch": Message(
        "{what} could not be fetched: {cause}",
        "does this version exist, and is Maven's public repository reachable? A mirror of it can be named in an "
        "Ivy settings file to which TWINSHORE_IVY_SETTINGS points",
    ),
    "lab.cannot-set-up": Message("{what} could not be set up: {cause}"),
    "lab.cluster-down": Message(
        "cluster {cluster} in {folder} is down: its brokers have died, its data is still there",
        "`twinshore lab start {cluster}` starts it again with its data; `twinshore lab down` removes it",
    ),
    "lab.cluster-named-twice": Message("a cluster is named twice in {clusters}"),
    "lab.demo-not-replicated": Message("records written to {topic} do not arrive on west"),
    "lab.demo-stalled": Message("no record was replicated for {seconds:.0f} s; west still lacks {missing}"),
    "lab.demo-timeout": Message("{what} after {seconds:.0f} s"),
    "lab.folder-taken": Message("{path} exists, and is no cluster of the lab", "name another cluster or another --dir"),
    "lab.group-failed": Message("group {group} cannot continue to read: {cause}"),
    "lab.group-offset": Message("group {group} read offset {offset} of {partition}, next was {expected}"),
    "lab.group-records": Message("group {group} read {read} records, of {records}"),
    "lab.group-silent": Message("group {group} received no more after {records} records"),
    "lab.incomplete-start": Message(
        "cluster {cluster} is {state}, and its start was not completed", "`twinshore lab down`, then up again"
    ),
    "lab.invalid-cluster-name": Message(
        "{cluster!r} cannot be a cluster's name", "lower-case letters, digits, - and _, up to 41 of them"
    ),
    "lab.never-started": Message("{process} was never started"),
    "lab.no-java": Message(
        "Java {version} or newer is needed, but {found}", "install a Java {version}+ runtime, or point JAVA_HOME at one"
    ),
    "lab.no-leaders": Message("topic {topic} of cluster {cluster} has partitions without a leader after 30 s"),
    "lab.no-pyspark": Message("PySpark with its Ivy jar is not installed", "install Twinshore with its dependencies"),
    "lab.no-records": Message("no records of {topic}-{partition} arrive"),
    "lab.no-worker": Message("no Spark worker of the mirror is connected to the target", "see {log}"),
    "lab.not-a-demo": Message(
        "{folder} is not the folder of a demo that still runs: {file} cannot be read",
        "the demo printed its folder when it ended",
    ),
    "lab.not-acknowledged": Message(
        "{records} records of {topic} were not acknowledged by {cluster} within {seconds:.0f} s"
    ),
    "lab.not-started": Message("{process} did not start; the end of its log:\n{log}"),
    "lab.process-ended": Message("{process} ended with exit code {exit_code}; the end of its log:\n{log}"),
    "lab.records-differ": Message("{acknowledged} records were acknowledged, {found} are found: {account}"),
    "lab.started-before": Message("cluster {cluster} was started before"),
    "lab.unknown-cluster": Message("no cluster {cluster} in {folder}", "there are: {known}"),
    "lab.unreadable-topic": Message("topic {topic} of cluster {cluster} cannot be read: {cause}"),
    "lab.workload-failed": Message("the workload on {topic} failed: {cause}"),
    # cli
    "cli.cluster-not-up": Message("no cluster {cluster} is up (up are: {up})"),
    "cli.fix-with-json": Message("--fix prints sentences, no JSON", "leave --json out"),
    "cli.old-home-alive": Message(
        "{cluster} may have records that would stay behind: --yes alone does not leave it",
        "switch from {cluster} without --force; or add `--alive {cluster}` to leave it all the same",
    ),
    "cli.output-exists": Message("{path} exists already", "name another file with --output"),
    "cli.unwritable-file": Message("{path} cannot be written: {cause}"),
    "cli.yes-without-fix": Message("--yes does nothing by itself", "add --fix"),
}
