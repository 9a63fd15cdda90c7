"""What follows a link besides records: topic settings, deletions, ACLs, quotas, SCRAM users.

Each kind has a pure decision: both sides and what the store remembers enter, changes leave. Nothing here touches a
record.
"""
