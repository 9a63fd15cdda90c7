"""Records cross over: each twin partition becomes a prefix of its source's log, at the same offsets.

Five rooms carry: `driver` plans and remembers, `desk` decides which pump carries which partition, `pump` moves the
bytes of one lane inside a Spark task, `core` decides what that pump does next, and `lane` what becomes of each
partition. The steps of a plan are values (`planned`). Beside them: what follows besides records (`follow`), twins
behind data of others (`mapping`), what went wrong (`incidents`), operators' words (`control`), several links together
(`topology`), figures (`metrics`), and what verbs do (`operations`). What a record means is unknown here: batches cross
as bytes.
"""
