"""Are both sides the same, and up to which offset: by comparing records, not by trusting what replicated them.

Batches of both sides enter as fetched; a proof or the first difference leaves. The comparison is pure; reading, Spark
and the store are around it. A proof trusts no progress that a mirror reported.
"""
