"""Links and what replicates them: each twin partition becomes a prefix of its source's log, at the same offsets.

A controller holds a link's lease, compares both clusters, plans, and deals partitions to tasks, which run in Spark. The
coordinator decides which task may write which partition. `task` moves batches; `sync` copies topics' settings, ACLs and
quotas; `adopt` takes over topics that already hold data; `operations` holds what verbs do. Batches pass as bytes: this
package does not know what a record means.
"""
