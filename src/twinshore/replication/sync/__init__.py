"""What follows a link besides records: topic settings, deletion and re-creation, ACLs, quotas, SCRAM users.

Each kind has a pure module: both sides and what the store remembers go in, changes come out as values. `reading` looks,
`hands` does and audits, `follower` is the task that does so every few seconds. Nothing here touches a record.
"""
