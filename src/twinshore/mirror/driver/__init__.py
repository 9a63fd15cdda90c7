"""One process for its links: plans, makes twins, deals partitions out to lanes, and keeps what pumps tell.

`run` begins a `link_driver` for each link. It holds the link's lease (`term`), looks at both clusters
(`survey`), plans (`plan`), makes twins (`twins`) and hands lanes to tides (`tides`, on an `engine`). Pumps report to
the `desk`, which grants them time and passes a lane from one tide to the next, as `mirror.desk` decides. Accounts
become receipts (`recorder`), notes of it all stand on the target (`link_notes`), and how the link stands is said in
words of `links`.
"""
