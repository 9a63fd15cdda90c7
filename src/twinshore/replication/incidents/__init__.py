"""What keeps a twin from equalling its source: detected, recorded, and resumed from.

One table has each kind: what becomes of the partition, what the kind means, what to do. A stopped partition resumes
when its rows are closed, by the mirror itself or by `twinshore mirror resume`.
"""
