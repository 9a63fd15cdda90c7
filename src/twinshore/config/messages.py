"""The texts of errors that an operator meets, by code. `{name}` is a value of the error.

A code is `package.what-is-wrong`. Codes are public: programs compare them, so a code keeps its meaning. The packages
that are not here are in `cluster_messages.py`.
"""

from __future__ import annotations

from twinshore.config.cluster_messages import CLUSTER_MESSAGES, Message

MESSAGES = {
    **CLUSTER_MESSAGES,
    # client
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
    "replication.no-link-to-run": Message("no link to run", 'name one in the settings: [links."east->west"]'),
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
    "replication.not-resumed": Message("not resumed: {reasons}", "docs/incidents.md says what to do about each"),
    "replication.not-stopped": Message("no incident stops {place}{near}", "`twinshore status` shows what is open"),
    "replication.one-of-two": Message("give either {one} or {other}"),
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
        "save them first; --even-uncarried agrees that they are deleted too",
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
        "{cause}", "make room there first, or lower disk_pause_percent of the mirror's settings"
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
    "switch.newer-home-record": Message("{cause}", "{remedy}"),
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
        "{cluster} has {offsets} of its own in {topics}: no link could make a twin of it",
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
}
