"""What holds for a link: which topics it lets through (`filters`), its settings and what operators have said since
(`in_force`, `wishes`), filters that clash and those that hold instead (`clashes`, `standing`), and the algebra of names
by which two filters can be compared (`names`, `patterns`): no record may come back to where it was, and no two links
may write one topic (`rules`).

Nothing here knows a cluster or a running mirror.
"""
