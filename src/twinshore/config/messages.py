"""The texts of errors that an operator meets, by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`. Codes are public: programs compare them, so a code keeps its meaning. The packages
that are not here are in `cluster_messages.py`.
"""

from __future__ import annotations

from twinshore.config.cluster_messages import CLUSTER_MESSAGES, Message

MESSAGES = {
    **CLUSTER_MESSAGES,
    # client
    "client.acks-needed": Message(
        "cluster {cluster}: {key} is {value}, and a producer that follows its topics needs acknowledgements",
        "set acks to all, or to 1 or more with enable.idempotence set to false",
    ),
    "client.apollo-key-missing": Message("the namespace has no key {key}"),
    "client.argument-invalid": Message("recognise must be True or False, and warn a function"),
    "client.argument-too-low": Message("{name} is {value}, and the least is {min}"),
    "client.bootstrap-invalid": Message(
        "cluster {cluster}: bootstrap.servers is not a string", "as in host:port,host:port"
    ),
    "client.http-body-too-long": Message("the answer has more than {max:,} bytes"),
    "client.http-status": Message("the answer is HTTP {status}: {cause}"),
    "client.lease-out-of-range": Message("lease_s is {lease_s!r}, and a switch accepts 0.001 to {max:g}"),
    "client.no-clusters": Message(
        "no cluster is given", 'clusters={{"east": {{"bootstrap.servers": "..."}}, "west": {{...}}}}'
    ),
    "client.no-push": Message("no settings were pushed: {cause}"),
    "client.no-such-cluster": Message("there is no cluster {cluster}", "known are {clusters}"),
    "client.no-such-spool": Message("{folder} has no spool", "name the folder that the producer has as `spool`"),
    "client.no-topics": Message("no topic is given", "* stands for all topics"),
    "client.not-subscribed": Message("{consumer} has not subscribed to topic {topic}"),
    "client.pair-assigned-apart": Message(
        "cluster {cluster}: this {key} may assign the two names of a topic to different members",
        "leave it out: with {needed} one member has the same partitions of both",
    ),
    "client.pair-of-two": Message("a pair has two clusters, and {count} are given"),
    "client.pair-uneven": Message("{consumer} is assigned {cause}"),
    "client.protocol-unknown": Message(
        "cluster {cluster}: security.protocol {protocol} is unknown", "known are {known}"
    ),
    "client.push-clusters-invalid": Message("clusters is not a table of 1 to {max} clusters by name"),
    "client.push-cut-off": Message("the answer is cut off"),
    "client.push-for-other-topics": Message("the push is for topic {topics}, which the application does not have"),
    "client.push-home-unknown": Message("home {home} is not one of the clusters {clusters}"),
    "client.push-key-twice": Message("the push has a key twice"),
    "client.push-key-unknown": Message("{key!r} is not a key of a push", "known are {known}"),
    "client.push-not-json": Message("the push is not a whole JSON object"),
    "client.push-of-reserved-setting": Message(
        "cluster {cluster}: {key} cannot be pushed: the application sets it itself"
    ),
    "client.push-of-unknown-cluster": Message(
        "cluster {cluster} is not one of the application's own, and no other is accepted from an http:// address",
        "use https://, name the application's clusters in Pushes(clusters=), or set insecure_http=True",
    ),
    "client.push-of-weaker-protocol": Message(
        "cluster {cluster}: security.protocol {pushed} cannot be pushed: the application's own is {own}"
    ),
    "client.push-settings-invalid": Message("{place} is not a table of settings"),
    "client.push-too-long": Message("a push has {max:,} characters at most"),
    "client.push-topics-invalid": Message("topics is not a list of names"),
    "client.push-value-invalid": Message("{place}: {key} is not a string, a number or a boolean"),
    "client.push-without-tag": Message("the answer has no ETag of a push server"),
    "client.pushes-in-use": Message(
        "these pushes belong to another client", "make one for each client, also for one that was refused"
    ),
    "client.sasl-mechanism-unknown": Message(
        "cluster {cluster}: sasl.mechanism {mechanism} is none of {known}",
        "for another one, give the cluster as a twinshore.config.model.Cluster",
    ),
    "client.setting-missing": Message("cluster {cluster}: {key} is not set"),
    "client.setting-unknown": Message(
        "cluster {cluster}: {key} is not supported: the client asks the cluster by connections of its own",
        "supported are {known}",
    ),
    "client.spool-damaged": Message(
        "{damage}; such damage in all: {count}",
        "twinshore spool show {folder}; twinshore spool send {folder} --past-damage gives up what cannot be read",
    ),
    "client.spool-in-use": Message(
        "{folder} is the spool of a running producer, process {process}",
        "give each producer a folder of its own, or stop that one",
    ),
    "client.spool-not-named": Message("spool_bytes_max is set, and no spool", "spool= names its folder"),
    "client.spool-not-sent": Message("not sent within {seconds:g} s, and still in the spool: {left}"),
    "client.spool-of-another-version": Message(
        "the spool has version {version}, and this client reads version {known}", "update the client"
    ),
    "client.spool-record-unreadable": Message("{file}: the record at byte {position} cannot be read any more"),
    "client.spool-unreadable": Message("the spool {folder} cannot be opened: {cause}"),
    "client.spool-with-other-files": Message(
        "{folder} is not a spool: it holds {file}", "give the spool a folder of its own"
    ),
    "client.spool-without-topic": Message("{folder} has no records of topic {topic}", "it has records of {topics}"),
    "client.star-not-last": Message("topic {topic}: a * stands at the end only"),
    "client.token-invalid": Message("the token is invalid", "one line of letters, digits and . _ ~ + / = -"),
    "client.token-or-file": Message("a push server needs either token or token_file"),
    "client.topic-is-an-expression": Message(
        "topic {topic} is a regular expression, and {consumer} follows topics by name"
    ),
    "client.topic-not-followed": Message("topic {topic} is not one of those that {producer} follows: {topics}"),
    "client.transactional": Message(
        "cluster {cluster}: a producer with a transactional.id cannot follow its topics", "stop it for the switch"
    ),
    "client.twin-named": Message("{topic} is the twin on {cluster} of another topic, and is read with that topic"),
    "client.url-invalid": Message("{server}: {url!r} is not an http:// or https:// address"),
    "client.when-full-invalid": Message("when_full is {when_full}, and must be wait or tell"),
    # replication
    # switch
    "switch.push-changed": Message(
        "{app}: another process has pushed since this push was planned", "plan the push again"
    ),
    # proxy
    "proxy.breaker-client-empty": Message("--client is empty", "leave it out for all clients"),
    "proxy.breaker-reason-empty": Message("--reason is empty", "give the reason: other operators read it"),
    "proxy.breaker-topic-invalid": Message("{topic!r} is not a topic or a prefix of topics", "as in orders, or ord*"),
    "proxy.breakers-changed": Message("another process has changed circuit breakers since the plan", "plan again"),
    "proxy.certificate-unusable": Message(
        "[proxy] certificate_file {certificate} with key_file {key} cannot be used: {cause}",
        "give PEM files that belong together, and that this user can read",
    ),
    "proxy.client-ca-unusable": Message("[proxy] client_ca_file {file} cannot be used: {cause}"),
    "proxy.cluster-not-behind": Message("{cluster} is not a cluster behind the proxy; known: {clusters}"),
    "proxy.commits-not-held": Message(
        "{proxies} did not confirm in time that offset commits are held",
        "nothing has changed; `twinshore proxy list` shows which proxies serve",
    ),
    "proxy.duration-invalid": Message("{option} {text} is not a duration", "write 90s, 10m, 2h or 1d"),
    "proxy.group-name-invalid": Message("GROUP must have 1 to {max} characters"),
    "proxy.groups-home-answers": Message(
        "groups are at home on {home}, which answers", "leave --force out: then no record is read again"
    ),
    "proxy.groups-home-silent": Message(
        "groups are at home on {home}, which does not answer", "with --force they go on at the offsets that were copied"
    ),
    "proxy.groups-moved": Message("groups have moved to {home} since the plan", "plan again"),
    "proxy.groups-moving": Message("groups are about to move", "`twinshore proxy groups` shows where they are"),
    "proxy.groups-record-changed": Message(
        "another process moves the groups at the same time: the record on {cluster} has changed",
        "`twinshore proxy groups` shows where they are",
    ),
    "proxy.groups-unlisted": Message("the groups of {cluster} cannot be listed: {cause}"),
    "proxy.groups-with-waves": Message(
        "groups cannot move with a switch of several waves",
        "switch without --groups, then run `twinshore proxy groups --to {to}`",
    ),
    "proxy.limit-not-for-fetch": Message(
        "a circuit breaker of fetches has a limit in bytes only", "add --produce, or give --bytes-s only"
    ),
    "proxy.limit-seconds-low": Message("--above-s and --quiet-s must be 1 or more"),
    "proxy.members-not-rejoined": Message(
        "members have not rejoined within {seconds:g} s: of {groups}",
        "nothing has moved; try again when they poll, or give them longer with --gather-s",
    ),
    "proxy.members-without-proxy": Message(
        "group {group} has members on {cluster} that did not come through a proxy",
        "stop them, or let them come through a proxy",
    ),
    "proxy.move-needs-empty-groups": Message(
        "groups of the consumer protocol (KIP-848) move only while they have no members: {groups}",
        "stop their members, which have group.protocol=consumer, until groups have moved",
    ),
    "proxy.move-too-slow": Message("the move took longer than proxies hold groups", "nothing has moved; try again"),
    "proxy.no-clusters": Message("[proxy] clusters: the settings have no cluster", "docs/proxy.md has an example"),
    "proxy.no-limit": Message("no limit is given", "give --records-s, --bytes-s or --latency-ms, each above 0"),
    "proxy.no-proxy-serves": Message(
        "group {group} has {members}, and no proxy is known to serve",
        "proxies and this command must have the same store; or stop the members",
    ),
    "proxy.no-store": Message("there is no store", "name it in [store] url"),
    "proxy.no-such-breaker": Message(
        "topic {topic} has no such circuit breaker", "`twinshore proxy fuse list` shows all of them"
    ),
    "proxy.no-such-broker": Message("no cluster has a broker of the host name {name!r:.260}"),
    "proxy.no-such-group": Message("there is no group {group} on {cluster}{nearest}"),
    "proxy.no-such-partition": Message("topic {topic} has {count} partitions, and no partition {partition}"),
    "proxy.no-such-topic": Message("there is no topic {topic}{nearest}"),
    "proxy.no-unfinished-reset": Message("no reset of group {group} is unfinished"),
    "proxy.not-a-consumer-group": Message(
        "group {group} is not a consumer group", "proxies set offsets of consumer groups only"
    ),
    "proxy.offsets-impossible": Message("these offsets cannot be set: {causes}"),
    "proxy.offsets-not-copied": Message("committed offsets cannot be copied: {cause}"),
    "proxy.offsets-not-synced": Message(
        "groups have committed offsets in topics of both clusters that no link copies: {groups}",
        'let a link with naming = "same" replicate these topics and groups; or delete these offsets on {old},'
        " or these topics on {new}",
    ),
    "proxy.offsets-unread": Message("committed offsets cannot be read: {cause}"),
    "proxy.password-empty": Message("{place} has no password"),
    "proxy.port-not-shareable": Message("[proxy] processes: two processes cannot share a port here", "set it to 1"),
    "proxy.producer-ids-clash": Message(
        "clusters {first} and {second} could give the same producer id to two producers",
        "leave one of them out of [proxy] clusters",
    ),
    "proxy.reset-home-silent": Message("groups are at home on {home}, which does not answer"),
    "proxy.reset-needs-empty-group": Message(
        "group {group} has the consumer protocol (KIP-848): its offsets are set only while it has no members",
        "stop its members, which have group.protocol=consumer, and start them again afterwards",
    ),
    "proxy.reset-running": Message(
        "{by} sets offsets of group {group} since {since}",
        "wait for the end, by {until} at the latest; `twinshore proxy offsets` shows the reset",
    ),
    "proxy.reset-targets-many": Message(
        "offsets are set to one target at a time",
        "give one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by, --resume and --undo",
    ),
    "proxy.reset-unfinished": Message("{by} began to set offsets of group {group} at {since}, and did not finish"),
    "proxy.reset-with-topics": Message(
        "--topic cannot be given with --resume or --undo", "an unfinished reset knows its partitions"
    ),
    "proxy.store-timeout": Message("the store does not answer within {seconds:g} s"),
    "proxy.target-has-members": Message(
        "groups have members on {cluster} already: {groups}",
        "stop members that did not come through a proxy; those of before an outage leave when their sessions end"
        " (45 s by default)",
    ),
    "proxy.target-silent": Message("{cluster} does not answer: {cause}"),
    "proxy.time-invalid": Message("--to-time {text} is not a time", "as in 2026-11-26T10:00:00Z"),
    "proxy.topic-at-each-site": Message(
        "topic {topic} exists at each site separately, by [near] own_topics",
        "set its offsets with Kafka's own tools at the address of one cluster, while no consumer reads it",
    ),
    "proxy.topic-option-invalid": Message("--topic {text} is not a topic", "as in orders, or orders:0,2"),
    "proxy.topic-without-leader": Message("{cause}"),
    "proxy.users-file-not-toml": Message("[proxy] users_file {file} is not TOML: {cause}"),
    "proxy.users-file-unreadable": Message("[proxy] users_file {file} cannot be read: {cause}"),
    "proxy.users-file-wrong": Message("[proxy] users_file {file}: {errors}"),
}
