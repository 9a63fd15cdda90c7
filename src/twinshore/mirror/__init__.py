"""Records cross over: each twin partition becomes a prefix of its source's log, at the same offsets.

A link's driver (`link_driver`) plans (`plan`), makes twins and cuts the work into lanes. A lane is carried by a tide: a
Spark task that runs a pump (`pump`, around the pure `lane`). Pumps report to the driver's desk, which grants them time
and passes a lane from one tide to the next (`relay`). Accounts become receipts (`recorder`). What a record means is
unknown here: batches cross as bytes.
"""
