"""Where a client hears that its topics have moved, and what its settings are: from the clusters themselves, and from
whatever configuration centre pushes to it.
"""
