"""Where a client reads a mirrored topic: at the twin of its own site while that is fresh, else at home. Pure.

`networks` says at which site a client is, `level` how far a twin is behind, `rules` which clusters are nearer than
home, and `reading` what becomes of one client's requests. `knows` is what all clients of a process share of it. A twin
has the offsets of its home, so a client may go from one to the other at any record, and back.
"""
