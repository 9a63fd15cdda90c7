"""The committed offsets of consumer groups, on both sides of a link: synced, moved and translated.

What brokers answer enters; commits leave, for groups without members. An offset moves back only where the source's
group was reset, or where an operator asks for that. This package does not know why a group should move.
"""
