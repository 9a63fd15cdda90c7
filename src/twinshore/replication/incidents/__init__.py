"""What can keep a twin from being its source's like: told apart, written down, and taken up again.

`kinds` is the one table: each kind of incident, what becomes of the partition, what it means, what to do. A pump or the
driver finds an incident, the recorder writes its row, `standing` keeps the partition off its lane and gives it back
when its rows are closed, by the mirror itself or by `twinshore mirror resume`, which looks whether the cause still
stands.
"""
