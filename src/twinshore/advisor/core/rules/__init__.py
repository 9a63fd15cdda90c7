"""Rules about clusters, topics and groups. Pure: a rule is a row, `judge` its one small function.

What was seen enters, where a rule's case is so leaves.
"""
