"""`python -m bench.show.topics`: any topic has an exact twin and every incident a row, tried on real parts.

LONG=1 tries all at full size; `--only NAME` tries one, and the page of evidence is not written then.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from bench.kit.claims import Claim
from bench.kit.playing import by_test
from bench.kit.showing import run_show
from bench.show import any_log as show_any_log
from bench.show import control as show_control
from bench.show import incidents as show_incidents
from bench.show import mapped as show_mapped
from bench.show import simulation as show_simulation

HEAD = """\
# Every topic, every incident, shown

Written by `make show-topics`, which tries each claim on real clusters and fails when one falls short; no figure is
typed by hand.
"""

# Each by the test that plays it, on real brokers.
SCENARIOS = (
    (
        "empty-topics",
        "an empty topic has an empty twin",
        "tests/scenarios/test_mirror_basic.py::test_an_empty_topic_has_an_empty_twin",
    ),
    (
        "new-topics",
        "topics and partitions that are added while it runs flow within 5 s, surveyed every second",
        "tests/scenarios/test_mirror_basic.py::test_new_topics_and_partitions_flow_within_five_seconds",
    ),
    (
        "restart",
        "a stop and a start go on where they stood",
        "tests/scenarios/test_mirror_basic.py::test_an_orderly_stop_and_a_start_go_on_where_they_stood",
    ),
    (
        "ledger-has-room",
        "the ledger takes each kind of incident with what was done about it, on SQLite, PostgreSQL and MariaDB",
        "tests/store/test_ledger.py::test_each_kind_has_room_for_what_was_done_about_it",
    ),
    (
        "refused-row",
        "one incident that the store refuses keeps no other, and no link's status, from it",
        "tests/mirror/driver/test_recorder.py::test_an_incident_that_is_refused_keeps_no_other_and_no_status_from_the_store",
    ),
    (
        "small-bombs",
        "160 batches of 120 bytes that unpack to 1 MB each cross as they are: any consumer reads both sides, the pump "
        "takes no memory for them",
        "tests/scenarios/test_bounds_of_batches.py",
    ),
    (
        "traces",
        "one look finds in twins that were spoilt unseen another history, a lost beginning, owed deletions, a foreign "
        "write, and nothing else, and changes nothing",
        "tests/scenarios/test_examining.py",
    ),
    (
        "deletions-owed",
        "keys whose tombstones were cleaned away before they crossed are found, told and never called identical",
        "tests/scenarios/test_owed_deletions.py",
    ),
    (
        "quotas",
        "of a byte quota of the target's brokers nine tenths cross, of one of the source's eight tenths and more; "
        "partitions rest for less than 5 s once the first burst is over, and status names the quota",
        "tests/scenarios/test_quotas.py::test_what_a_quota_lets_through_crosses_steadily",
    ),
    (
        "request-quotas",
        "under a quota for requests that throttles each answer for a second a backfill, transactions and each tide's "
        "first batch cross, and status names the quota",
        "tests/scenarios/test_quotas.py::test_what_no_sequence_guards_crosses_under_a_quota_for_requests_too",
    ),
    (
        "asking-apart",
        "a connection of its own asks a throttling broker where twins end, and what no sequence guards follows within "
        "half a second or not at all",
        "tests/mirror/pump/test_asking_apart.py",
    ),
    (
        "quotas-are-told",
        "what a quota of the target keeps from a twin for half a minute is a row that names it, over once it goes",
        "tests/mirror/lane/test_silence.py::test_what_a_quota_never_lets_be_sent_is_told_and_over_once_it_goes",
    ),
    (
        "addresses-elsewhere",
        "a target's address that leads to another cluster after the start, or both swapped in the settings: no record "
        "is cut, no topic, setting, partition or group's place changed there; all goes on when it leads back",
        "tests/scenarios/test_addresses_that_lead_elsewhere.py",
    ),
    (
        "unwritable-log",
        "a mirror whose log has no reader, a reader that reads nothing, or a full disk goes on whole: topics begin, "
        "settings follow, /health is ok, and it stops in good order",
        "tests/scenarios/test_unwritable_log.py",
    ),
    (
        "threads-kept-on",
        "a thread that ends unasked begins again, and /health says 503 with its name and why for a minute",
        "tests/service/test_workers.py",
    ),
    (
        "errors-pass",
        "of every error code that brokers know, only what never passes by itself stops a partition; the rest is waited "
        "out, told, and over by itself",
        "tests/mirror/lane/test_errors_that_pass.py",
    ),
    (
        "idle-histories",
        "a source that loses its end under a resting partition and grows beyond it unseen, also by an unclean election "
        "of three brokers, ends in a truncation that names the range; nothing is written beyond it",
        "tests/scenarios/test_idle_histories.py",
    ),
    (
        "lost-beginning",
        "records that somebody deletes at a twin's beginning are told by their range, until the source has passed them",
        "tests/scenarios/test_incidents.py::test_a_beginning_that_the_target_lost_is_told",
    ),
    (
        "topics-follow",
        "settings, partitions, deletion and re-creation follow; a recreated topic is known across a restart",
        "tests/scenarios/test_topics_follow.py",
    ),
    (
        "deletions",
        "a twin is deleted only at an announced time, and never while paused, left out, kept by a word, written to "
        "by others, or with all the others at once; never_delete that is set while the mirror runs is heard at once, "
        "and `mirror plan` says of such a topic what the mirror decides",
        "tests/scenarios/test_deletions.py",
    ),
    (
        "never-cut",
        "with `never_delete` no record is cut off a twin, neither by the driver nor by a pump that begins; what a link "
        "filled a new twin with goes all the same, and what it had filled a gap with is told with its offsets",
        "tests/scenarios/test_what_is_never_cut.py",
    ),
    (
        "no-filler",
        "without the right to cut a twin its readers see no record that its source has not, from the first offset on",
        "tests/scenarios/test_incidents_of_targets.py::"
        "test_a_twin_that_may_not_be_cut_shows_nothing_but_its_sources_records",
    ),
    (
        "uncut-told",
        "a cut that the target refuses has a row until the right is given, and takes no partition off its lane",
        "tests/scenarios/test_incidents_of_targets.py::"
        "test_a_cut_that_is_refused_has_its_row_until_it_is_done_and_nothing_leaves_its_lane",
    ),
    (
        "forged-notes",
        "lines that strangers write to a source's `twinshore.twins` stop no carried topic and no process, and a new "
        "topic for a minute at most; the ledger says of which they speak",
        "tests/scenarios/test_doubtful_notes.py",
    ),
    (
        "topics-apart",
        "a source partition without a leader, and a topic whose settings may not be read, hold up no other topic or "
        "partition when a mirror starts; each has its row",
        "tests/scenarios/test_topics_apart.py",
    ),
    (
        "one-link-a-topic",
        "two processes of one store that were started with other settings never carry one topic to one twin: both "
        "follow the settings that were taken last, and a link takes a topic only once the other one has let it go",
        "tests/scenarios/test_topologies.py::test_two_processes_that_read_other_settings_never_carry_one_topic",
    ),
    (
        "bounded-rights",
        "no ACL of a group allows anything on the target that a denial bounds which the target refused, whether of one "
        "group or of many",
        "tests/mirror/follow/test_rules.py::test_nothing_is_allowed_that_a_refused_rule_for_many_groups_would_have_bounded",
    ),
    (
        "rights-follow",
        "ACLs are the same after sync, as the users themselves find, those of groups by the filters that hold now; "
        "quotas and SCRAM users follow",
        "tests/scenarios/test_rights_follow.py",
    ),
    (
        "rights-shut",
        "ACLs that follow open nothing else, also where everybody may use what no ACL speaks of: the last rule of a "
        "topic stays, a new twin carries nothing before its rules stand, and the ledger says what it waits for; "
        "a refusal is told once a day, and no name writes a line of the log",
        "tests/scenarios/test_rights_shut.py",
    ),
    (
        "mapped-settings",
        "a mapped topic keeps the settings of its owner while it is carried, and nothing is there twice",
        "tests/scenarios/test_mapped_twins.py::test_a_topic_that_others_write_to_takes_transactions_without_their_markers",
    ),
    (
        "both-refuse",
        "where both clusters turn the mirror away, the ledger names each until its own is mended",
        "tests/mirror/incidents/test_watch.py",
    ),
    (
        "lab-down",
        "`lab down` removes folders that `lab up` marked, and no others that look alike",
        "tests/lab/test_standing.py",
    ),
    (
        "clashing-words",
        "a paused link stays paused, over a restart, when a new link of the settings clashes with what operators said",
        "tests/scenarios/test_clashing_words.py",
    ),
    (
        "second-store",
        "a second store is refused a link by name and writes nothing, also after the notes that say so were cut away; "
        "of two that start at once one goes on",
        "tests/scenarios/test_two_stores.py",
    ),
    (
        "lost-store",
        "a lost store is recovered from its target, nothing is copied again, and the logs stay equal",
        "tests/scenarios/test_lost_store.py",
    ),
    (
        "adoption-proven",
        "a copy that retention has taken in part or whole, or that ends in a repeated transaction, is refused where "
        'nothing proves the place; with mapped_from = "end" only what comes from now on crosses',
        "tests/scenarios/test_adoption.py",
    ),
    (
        "mapped-at-rest",
        "mapped partitions at rest stop for no hand-over and no restart of their leader or of the mirror, also where "
        "they end in markers that nobody sees; nothing is called lost that is there",
        "tests/scenarios/test_mapped_handovers.py",
    ),
    (
        "both-ways",
        "both directions at once with heartbeats, by mirrors that share no store: nothing goes round",
        "tests/scenarios/test_topologies.py::test_both_directions_at_once_by_two_mirrors_that_share_no_store",
    ),
    (
        "one-owner",
        "a partition changes lanes only when no pump can write it: it has said so, or its last grant has run out",
        "tests/mirror/driver/test_desk.py",
    ),
    (
        "ring",
        "a ring of three with prefixed names carries everything everywhere once, without a loop",
        "tests/scenarios/test_topologies.py::test_a_chained_ring_of_three_carries_everything_everywhere_once",
    ),
)
PARTS = (show_any_log, show_incidents, show_control, show_mapped, show_simulation)


def claims(seed: int, only: Collection[str] = ()) -> list[Claim]:
    """All of them; what those in `only` rest on is measured, nothing else."""
    found = [claim for part in PARTS for claim in part.claims(seed, only)]
    return found + [Claim(name, says, by_test(name, test)) for name, says, test in SCENARIOS]


def main(arguments: Sequence[str] | None = None) -> int:
    """Progress to standard error; the table and, last, one line of JSON to standard output."""
    return run_show("topics", HEAD, claims, arguments)


if __name__ == "__main__":
    sys.exit(main())
