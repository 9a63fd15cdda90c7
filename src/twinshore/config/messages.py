"""The texts of errors that an operator meets, by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`. Codes are public: programs compare them, so a code keeps its meaning. The packages
that are not here are in `cluster_messages.py`.
"""

from __future__ import annotations

import re
from itertools import groupby

from twinshore.config.cluster_messages import CLUSTER_MESSAGES, Message

MESSAGES = {
    **CLUSTER_MESSAGES,
    # client
    "client.acks-needed": Message(
        "cluster {cluster}: {key} is {value}, and a producer that follows its topics needs acknowledgements",
        "set acks to all, or to 1 or more with enable.idempotence set to false",
    ),
    "client.apollo-key-missing": Message("the namespace has no key {key}"),
    "client.argument-invalid": Message("recognise must be True or False"),
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
        "these pushes belong to another client", "create one for each client, also for one that was refused"
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
    "replication.as-settings-alone": Message(
        "--as-settings takes each value from the settings: the settings must name the link, and no value is given"
    ),
    "replication.bad-link": Message("{complaints}", "docs/settings.md lists every setting"),
    "replication.bad-override": Message("link {link}: {name}: {cause}"),
    "replication.claim-of-another-cluster": Message(
        "link {link}: `twinshore.twins` on {cluster} names another cluster as the target",
        "check the bootstrap addresses of both clusters",
    ),
    "replication.home-changed": Message(
        "topic {topic}: another process set its home, or a link replicates it by now",
        "look at it with `twinshore link homes`",
    ),
    "replication.home-elsewhere": Message(
        "topic {topic} has records on {cluster} alone: its home is there",
        "`twinshore link home {topic} {cluster}` sets that; the mirror does so too",
    ),
    "replication.home-needs-switch": Message(
        "link {link} replicates topic {topic}: only a switch can move its home to {home}",
        "leave the home as it is, or run `twinshore switch`",
    ),
    "replication.link-exists": Message("link {link} exists already", "change it with `twinshore link set`"),
    "replication.link-has-twins": Message(
        "link {link} cannot be turned: link {written_by} has twins on {cluster} ({twins}), and the turned link would "
        "write twins of twins, or records into topics that others write",
        "a link can be turned before it has replicated anything; `twinshore switch` moves the home of a topic",
    ),
    "replication.link-of-another-store": Message(
        "link {link} into {target} is written by store {store} (host {host}, since {since}); the store here is {here}",
        "run the mirror with that store; if that store is lost or must not write any more, stop its mirror, then "
        '`twinshore link recover "{link}" --dry-run`',
    ),
    "replication.link-running": Message(
        "link {link}: a mirror runs it now: {owner}", "stop that mirror in good order, then run this again"
    ),
    "replication.links-changed": Message(
        "the links have changed since the plan; nothing was done", "look at them and try again"
    ),
    "replication.links-changing": Message(
        "other processes change the links at the same time, again and again", "look at them and try again"
    ),
    "replication.links-collide": Message(
        "links {links} would both write {topics} on {cluster}{more}",
        'naming = "prefix" for both, filters that have no topic in common, or `twinshore link remove`',
    ),
    "replication.links-loop": Message(
        "links {links} would replicate {topics} in a circle, each under the same name: a loop{more}",
        'give the links topics of their own, or naming = "prefix"',
    ),
    "replication.mapped-twin-kept": Message(
        "topic {topic} of {link} is mapped: its twin has records of other producers and is never deleted here",
        'stop the mirror, `twinshore mirror forget {topic}`, set mapped_from = "start" for what the source has now, '
        "start the mirror again",
    ),
    "replication.mixed-broadcast": Message("link {link}: {cause}"),
    "replication.naming-fixed": Message(
        "link {link} has twins, so its naming cannot change ({twins})",
        "keep naming = {naming!r}; `twinshore mirror forget TOPIC --link {link}` frees a topic",
    ),
    "replication.newer-claim": Message(
        "link {link}: a newer version (v {version}) wrote the claim on {cluster}; this version cannot read it",
        "use the newer version",
    ),
    "replication.no-claim": Message(
        "nothing on {cluster} names the store that writes link {link} from cluster {source_id}",
        "a mirror begins the link",
    ),
    "replication.no-deletion-waits": Message(
        "no deletion of the twin of {topic} waits for approval{near}", "`twinshore status` shows what is open"
    ),
    "replication.no-filter-given": Message(
        "no filter is given", "give --topics, --exclude, --groups or --exclude-groups"
    ),
    "replication.no-offset-map": Message(
        "{partition} has no map of offsets: no link replicates it as mapped",
        "exact topics need none: an offset is the same on both sides",
    ),
    "replication.no-pair": Message(
        "no two links replicate topics from {home} and back under the same names",
        "a topic has a home where two links go both ways between two clusters, with `naming` same",
    ),
    "replication.no-source-topic": Message("{cluster} has no topic {topic} now: there is nothing to begin with"),
    "replication.no-such-incident": Message("--kind: no such incident {kind!r}", "one of: {known}"),
    "replication.no-such-link": Message("there is no link {link!r}{near}"),
    "replication.no-such-override": Message("operators cannot change {name!r}{near}"),
    "replication.not-protected": Message("topic {topic} is not protected", "`twinshore protection show` lists all"),
    "replication.not-resumed": Message("not resumed: {reasons}", "docs/incidents.md says what to do about each"),
    "replication.not-stopped": Message("no incident stops {place}{near}", "`twinshore status` shows what is open"),
    "replication.one-of-two": Message("give either {one} or {other}"),
    "replication.protection-away": Message(
        "{level} counts once every cluster has it, and these do not take it: {clusters}", "run it again once they do"
    ),
    "replication.protection-no-topic": Message(
        "no link replicates a topic {topic!r}", "with --as-settings the section `protection` must name it too"
    ),
    "replication.protection-no-twin": Message(
        "topic {topic} has no twin, or none on the cluster of --twin", "a link must replicate it first"
    ),
    "replication.protection-not-exact": Message(
        "topic {topic}: its twin by link {link} may have other offsets, or lack records",
        'protection needs naming = "same", mode = "exact", and a queue that drops nothing',
    ),
    "replication.protection-reads": Message("--read both needs --level sync or strict"),
    "replication.protection-several-twins": Message(
        "topic {topic} has several twins", "name the one that counts with --twin: {clusters}"
    ),
    "replication.protection-weak": Message(
        "topic {topic} on {cluster} may lose what it confirmed: {why}", "mend that, or give --even-weak"
    ),
    "replication.reverse-link-exists": Message(
        "link {link} cannot be turned: link {reverse} exists already",
        "remove one of the two first; `twinshore switch` moves single topics between them",
    ),
    "replication.several-pairs": Message("{home} is in several pairs: {pairs}", "choose one with --link"),
    "replication.settings-empty": Message("{file} is empty"),
    "replication.store-copied": Message(
        "link {link} is written by {process} too, with a copy of this store, {store}",
        "stop both, keep the store with more progress (`twinshore status --topics`), delete the other",
    ),
    "replication.topic-not-in-pair": Message(
        "topic {topic} is not in the filters of both {link} and {back}",
        "a topic that one link alone admits needs no home: that link replicates it",
    ),
    "replication.topic-not-paused": Message("{topic!r} is not paused on link {link}{near}"),
    "replication.topic-not-recreated": Message("topic {topic} is not stopped as deleted and made again{near}"),
    "replication.topic-on-several-links": Message(
        "several links have topic {topic}: {links}", "choose one with --link"
    ),
    "replication.topic-unknown": Message("no link has a twin of topic {topic}{near}"),
    "replication.twin-gone": Message(
        "the twin of {topic} is gone: there is nothing to keep", "`twinshore audit` says when it went"
    ),
    "replication.twin-last-copy": Message(
        "the twin of {topic} has offsets that this link has not recorded as replicated: they may be the last copy",
        "save them first; --even-unreplicated agrees that they are deleted too",
    ),
    "replication.twin-not-deleted": Message(
        "the twin of {topic} is not deleted: {why}", "docs/deletes.md says what forbids it"
    ),
    "replication.twins-carried-back": Message(
        "link {link} would write twins back to their source: {twins}",
        "leave the link as it was, or exclude these topics; `twinshore switch` moves the home of a topic, "
        "`twinshore mirror forget TOPIC --link LINK` frees one that is no twin any more",
    ),
    "replication.value-not-set": Message("{name!r} is not set", "set are: {known}"),
    "replication.value-unreadable": Message(
        "{value!r} is not a value: {cause}",
        "write name=value as in the settings, like {example}; a shell needs '...' around it",
    ),
    # switch
    "switch.all-or-topics": Message("--all means all topics of a link", "leave topics and --group out"),
    "switch.at-home-already": Message("already at home on {cluster}: {topics}", "`twinshore link homes` shows homes"),
    "switch.bad-app-name": Message(
        "{app!r} is not an application's name: letters, digits, dot, dash, underscore, at most 64"
    ),
    "switch.bad-certificate": Message(
        "[push] certificate_file, key_file: {cause}", "PEM files, which this user can read"
    ),
    "switch.bad-expression": Message("TOPIC: {cause}"),
    "switch.bad-wave": Message("--wave takes how many topics move at once, 1 or more"),
    "switch.claim-lost": Message(
        "topic {topic} is not in this switch any more, as {cluster} says: another process has ended the switch",
        "look at it with `twinshore switch status`",
    ),
    "switch.claimed-in-store": Message(
        "switch {switch} has these topics, as {cluster} says: {topics}; its record is in the store, which is silent",
        "let the operator who runs that switch end it",
    ),
    "switch.cluster-silent": Message("{cluster} does not answer: {cause}", "wait until it does"),
    "switch.cluster-unread": Message("a cluster does not tell what the switch needs to know: {cause}"),
    "switch.command-missing": Message("{cause}", "correct the settings, or switch from another host"),
    "switch.committed": Message(
        "switch {switch} is past its point of no return ({step}): it can only go on",
        "`twinshore switch resume` ends it; then switch the topics the other way",
    ),
    "switch.data-is-replicated": Message(
        "link {link} replicates {topics}: their records would not stay on {source} alone",
        "leave out --without-data: a switch moves them with their records",
    ),
    "switch.disk-full": Message(
        "{cause}", "free space there first, or lower disk_pause_percent of the mirror's settings"
    ),
    "switch.file-in-use": Message("{file} is being worked on by another process", "type the same command again"),
    "switch.file-not-written": Message("{file} cannot be written: {cause}", "choose another folder with --folder"),
    "switch.file-unreadable": Message("{file} cannot be read: {cause}", "`twinshore switch rescue list` shows files"),
    "switch.foreign-writer": Message(
        "{partitions} on {cluster} ends with records of another producer than the one that `{claims}` names there: "
        "it is not known which one to shut out",
        "that record may be old: get the store back first",
    ),
    "switch.group-active": Message("group {group} has members on {to} already", "stop its consumers on {to} first"),
    "switch.group-ahead": Message(
        "group {group} {why}: does it read there already?",
        "`twinshore groups move` with `--backwards` sets it back to its offsets on {source}",
    ),
    "switch.group-not-a-name": Message("--group takes the name of one group, not an expression: {group}"),
    "switch.group-offsets-lost": Message(
        "group {group}: the link does not know the offsets on {to} of {partitions}",
        "the link replicated nothing there: set the offsets by hand",
    ),
    "switch.group-offsets-unknown": Message(
        "the committed offsets of group {group} are not known: {cause}", "wait until the cluster answers"
    ),
    "switch.group-on-several-clusters": Message(
        "group {group} may come from several clusters: {clusters}", "choose a link with --link"
    ),
    "switch.group-or-topics": Message("a switch moves topics, or one group alone", "leave the topics out, or --group"),
    "switch.group-planned-only": Message(
        "a group has no drill, and is not moved by force",
        "`twinshore switch plan --group` looks; if its home is gone, its offsets are committed on the twins already",
    ),
    "switch.group-reads-twin": Message(
        "these groups have members on {cluster}, which read what is to be deleted: {groups}", "{remedy}"
    ),
    "switch.home-elsewhere": Message(
        "topic {topic} is at home on {home}, and not on {source}", "switch it from {home}, along a link `{home}->{to}`"
    ),
    "switch.home-moved-too-often": Message(
        "changed homes {count:,} times: {topics}; brokers could not tell old producers from new ones any more",
        "move what is in the topic to a topic of another name",
    ),
    "switch.homes-conflict": Message("topic {topic}: the clusters name different homes"),
    "switch.lease-lost": Message(
        "this process has lost switch {switch}: its lease ran out, or another process goes on with the switch",
        "`twinshore switch status` shows it; `switch resume` goes on",
    ),
    "switch.link-adopts": Message(
        'link {link} adopts topics that hold data already (mode = "mapped"), and its twins are not {done}',
        "`twinshore link set '{link}' 'mode=\"exact\"'` ends that; each twin stays exact or mapped as it is",
    ),
    "switch.link-stopped": Message("link {link}: incidents stop {partitions}", "`twinshore status` says why"),
    "switch.mapped-already": Message(
        "on {cluster} the twins of {topics} go on as mapped, behind the records that were not replicated",
        "there is nothing to bring home any more",
    ),
    "switch.mapped-not-rebuilt": Message("mapped twins hold records of others and are not rebuilt: {topics}"),
    "switch.mapped-twins": Message("mapped twins have offsets of their own and are not switched: {topics}"),
    "switch.more-topics": Message(
        "{topics} would move as well, which was not there when this began", "switch again: all have twins by now"
    ),
    "switch.moved-nothing": Message("switch {switch} has moved no topic", "`twinshore switch history` lists switches"),
    "switch.name-is-expression": Message(
        "no link to {to} replicates topic {topic}, and as an expression it means {others}",
        "write dots of a name as `\\.`",
    ),
    "switch.newer-record": Message("switch {switch} goes on in a newer version", "go on with it in that version"),
    "switch.no-acl-rights": Message(
        "the switch may not change ACLs of {cluster}", "grant the mirror's user Alter on the cluster {cluster}"
    ),
    "switch.no-claims": Message(
        "nothing on {cluster} names the producers of its twins, and the store does not answer",
        "the mirror writes them into `twinshore.twins` there, where it has the rights: get the store back first",
    ),
    "switch.no-fencing-rights": Message(
        "late requests of {link} could not be shut out on {cluster}",
        "the mirror's user needs Alter or ClusterAction on cluster {cluster}",
    ),
    "switch.no-leader": Message("no leader on {cluster}: {partitions}"),
    "switch.no-link-for": Message(
        "no link to {to} replicates {topics}{near}",
        "a planned switch first has the link replicate a topic of {sources} that is given by its whole name; a forced "
        "switch moves only topics that have twins",
    ),
    "switch.no-link-to": Message("no link leads to {to}", "a topic moves along the link that replicates it"),
    "switch.no-mirror": Message("{cause}", "start it, then switch again"),
    "switch.no-push": Message(
        "nothing is pushed to {app}", "`twinshore push list` shows to which applications something is"
    ),
    "switch.no-such-group": Message(
        "group {group} has no committed offset in topics that links to or from {to} replicate",
        "`twinshore groups` lists groups that have",
    ),
    "switch.no-such-partition": Message(
        "topic {topic} on {cluster} has no partition {partition}", "records go to the partition where they lay"
    ),
    "switch.no-such-switch": Message("no switch {switch}", "`twinshore switch history` lists those that were begun"),
    "switch.no-such-topic": Message("{clusters} has no topic {topic}{near}"),
    "switch.no-such-twin": Message("link {link} has no twin of topic {topic}{near}"),
    "switch.none-open": Message("no switch is open", "`twinshore switch history` lists those that were begun"),
    "switch.not-at-home": Message("not at home on {cluster}: {topics}", "`twinshore link homes` shows homes"),
    "switch.not-mappable": Message("{cause}", "without --mapped the topic is deleted, and filled again"),
    "switch.not-moved-away": Message(
        "no switch has moved {topics} away from {cluster}",
        "`twinshore switch history` lists switches, `twinshore link homes` the homes of topics",
    ),
    "switch.not-one-token": Message("{count} tokens begin with {beginning!r}", "`twinshore push tokens` shows them"),
    "switch.not-taken-over": Message("switch {switch} has some of these topics, and {why}"),
    "switch.nothing-to-free": Message("no cluster has anything of {of}", "{remedy}"),
    "switch.nothing-to-switch": Message(
        "there is nothing to switch", "name topics ('.*' means all), one group with --group, or --all"
    ),
    "switch.of-names-topics": Message(
        "--of names topics by the switch that moved them", "leave topics, --all and --group out"
    ),
    "switch.other-records": Message("{cause}", "docs/switch.md, A twin that is spoilt, says how"),
    "switch.partition-counts-differ": Message(
        "topic {topic} has {partitions} partitions on {cluster}, and {source_partitions} on {source}"
    ),
    "switch.prefix-not-rebuilt": Message(
        "link {link} gives its twins other names, and they are not rebuilt yet",
        "stop the mirror, delete the twin, `twinshore mirror forget` the topic, start the mirror",
    ),
    "switch.producer-moves-alone": Message(
        "link {link} gives its twins other names, and both sides are written: {producer} needs no switch",
        "stop it on {source}, wait until `twinshore status` calls the link level, and start it on {target}, where it "
        "writes {topics}; a consumer that needs its order reads {twins} to its end there before what it writes from "
        "then on",
    ),
    "switch.producer-needs-topics": Message("--producer needs the topics that it writes, and no --group or --all"),
    "switch.producer-not-alone": Message(
        "{producer} alone cannot move: {topics} has one home, {source}, and what is written to its twin on {target} "
        "is not replicated{others}",
        "move the topic with all its producers: `twinshore switch run '{topic}' --to {target}`",
    ),
    "switch.push-changed": Message(
        "{app}: another process has pushed since this push was planned", "plan the push again"
    ),
    "switch.push-unusable": Message("cluster {cluster}: clients would refuse these settings: {cause}"),
    "switch.queue-fresh": Message(
        "the queue of {link} is fresh: its twins lack what was dropped, and are not switched",
        'give the queue policy = "keep", and let exact twins begin: docs/broadcast.md',
    ),
    "switch.record-changed": Message(
        "another process has changed switch {switch} in the meantime",
        "look at it with `twinshore switch status`, and try again",
    ),
    "switch.record-not-saved": Message("the record of the switch is not written yet: {cause}"),
    "switch.record-unreadable": Message(
        "switch {switch} has some of these topics, and this version cannot read its record",
        "end it with the version that began it",
    ),
    "switch.refilling": Message("{cause}", "`twinshore switch resume` ends it then"),
    "switch.replay-file-changed": Message("nothing was written: {file} was changed", "type the same command again"),
    "switch.replay-home-moved": Message(
        "nothing was written: {topic} is at home on {home} by now", "type the same command again"
    ),
    "switch.replay-in-doubt": Message(
        "nothing was written: offsets {first} to {last} may be in {topic} already: {cluster} gave no answer for them",
        "for a day {cluster} knows it, once {topic} is at home there again; `--to` takes another topic",
    ),
    "switch.replay-of-another-file": Message(
        "nothing was written: offsets {first} to {last} were being written from another file",
        "reinject that file again first",
    ),
    "switch.reverse-link-renames": Message(
        "link {link} gives its twins other names: it cannot replicate {topics} back"
    ),
    "switch.secret-in-push": Message(
        "{setting} is secret, and pushes are kept in the store", "let the application set it itself"
    ),
    "switch.several-claims": Message(
        "{cluster} has claims of {link} from several clusters ({sources}), and the store does not answer",
        "which of them is {source} the store knows",
    ),
    "switch.several-links": Message("several links could replicate {topics}: {links}", "choose one with --link"),
    "switch.several-switches": Message("{count} switches may be meant", "say which: {ids}"),
    "switch.source-silent": Message(
        "{cluster} does not answer ({cause}): a planned switch needs both clusters",
        "`--force` moves the topics with what was replicated, and says what was not",
    ),
    "switch.still-needed": Message("the store knows switch {switch}, which needs its claims", "{remedy}"),
    "switch.stopped-before": Message("stopped: link {link} replicates {topics} from now on, and nothing was switched"),
    "switch.stopped-while-held": Message(
        "stopped, and no writer is held; what is left of switch {switch} is in the store: {cause}",
        "once the store answers, the mirror turns it back, or `twinshore switch rollback` does",
    ),
    "switch.store-behind": Message(
        "topic {topic} is at home on {home} in term {term}, as the clusters say",
        "the store is behind: start the mirror, which takes up what the clusters say",
    ),
    "switch.store-needed": Message("without the store only topics can be switched", "name them; '.*' means all"),
    "switch.store-read-only": Message("nothing was begun: {cause}", "{remedy}"),
    "switch.takeover-stopped": Message("switch {switch} was not taken over: this command was stopped before"),
    "switch.target-has-offsets": Message(
        "{cluster} has {offsets} of its own in {topics}: no link could create a twin of it",
        "see who writes there, and whether it is at home there already; a link begins with an empty topic",
    ),
    "switch.target-not-empty": Message(
        "{cluster} has records or offsets of its own in {topics}", "delete the topic there, if it is not needed"
    ),
    "switch.too-few-replicas": Message(
        "too few replicas in sync on {cluster}: {partitions}; acks=all would be refused there",
        "wait until its brokers are back, or lower {setting} of these topics",
    ),
    "switch.topic-changed": Message("{cause}", "{remedy}"),
    "switch.topics-claimed": Message(
        "switch {switch} has these topics already: {topics}",
        "`twinshore switch status` shows it, and `twinshore switch resume` ends it; the mirror ends one whose process "
        "is gone while it holds writers",
    ),
    "switch.topics-on-several-clusters": Message(
        "several clusters have {topics}: {clusters}", "choose a link with --link"
    ),
    "switch.topics-paused": Message(
        "operators have paused link {link} for {topics}: the twins would never be level",
        "`twinshore link resume` lets it go on",
    ),
    "switch.twins-renamed": Message(
        "link {link} gives its twins other names: their topics are written on both sides",
        "on such links single producers and groups move, by their own addresses",
    ),
    "switch.wave-refused": Message("wave {wave} is refused: {cause}{left}", "run it again once the cause is gone"),
    "switch.whole-names-only": Message(
        "--without-data takes topics by their whole names, and neither --force, --all, --group, --of nor --producer"
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
        "topic {topic} has no such circuit breaker", "`twinshore proxy breaker list` shows all of them"
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
    # server
    "server.approval-refused": Message("job {job} {why}"),
    "server.cancel-refused": Message("job {job} {why}"),
    "server.job-changed": Message("job {job} has changed meanwhile", "look at it again"),
    "server.job-not-planned": Message("job {job} {why}", "plan it again"),
    "server.login-refused": Message("name or password is wrong"),
    "server.login-wait": Message("too many wrong passwords", "try again in {seconds} s"),
    "server.missing-value": Message("{operation} needs {name}"),
    "server.name-not-typed": Message("the confirmation must be {name}"),
    "server.no-job": Message("there is no job {job}"),
    "server.no-operation": Message("there is no operation {name}", "GET /api/v1/operations lists them"),
    "server.no-person": Message("there is no person {name}"),
    "server.no-such-page": Message("there is no such page"),
    "server.no-token": Message("not logged in", "send a token as Authorization: Bearer, or log in"),
    "server.not-allowed": Message("{name} has the role {role}, and this needs {needed}"),
    "server.not-json": Message("the request is not a JSON object of the known keys: {why}"),
    "server.password-refused": Message("the password {why}"),
    "server.plan-changed": Message("what the job would do has changed since it was planned: {change}"),
    "server.remote-and-settings": Message(
        "--server and --settings cannot be given together", "the platform has settings of its own"
    ),
    "server.remote-failed": Message("{url} does not answer: {cause}"),
    "server.remote-refused": Message("{url}: {cause}"),
    "server.role-refused": Message("the role must be one of {known}"),
    "server.session-ended": Message("the form is of another session", "load the page again"),
    "server.too-long": Message("the request has more than {max} bytes"),
    "server.unknown-value": Message("{operation} has no value {name}", "known are {known}"),
    "server.verb-left-out": Message("{verb} cannot be asked of a platform: it {why}"),
    "server.wrong-value": Message("{name} {why}"),
}

ERRORS_PAGE_HEAD = """\
# Errors

Written from the code by `make docs`. An error that an operator meets has a code, values and mostly a remedy. The
command prints `error: TEXT [CODE]` and `  try: REMEDY`; with `--json` it prints one JSON object on stderr, with
`error`, `hint`, `code` and `values`. Programs compare codes: a code keeps its meaning, and texts may change. Below,
`{name}` is a value. Errors of a cluster have Kafka's own codes instead. [Troubleshooting](troubleshooting.md) goes by
symptom.
"""


def render_errors_page() -> str:
    """docs/errors.md: each code with its text and remedy, by package."""
    lines = [ERRORS_PAGE_HEAD]
    for package, codes in groupby(sorted(MESSAGES), key=lambda code: code.partition(".")[0]):
        lines += [f"## {package}", "", "```text"]
        for code in codes:
            text, hint = (re.sub(r"{(\w+)[^}]*}", r"{\1}", said) for said in MESSAGES[code])
            lines += [code, *(f"    {line}" for line in text.split("\n")), *([f"    try: {hint}"] if hint else [])]
        lines += ["```", ""]
    return "\n".join(lines)
