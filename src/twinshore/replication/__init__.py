"""What links there are, and what holds for each.

A link is a row of the store; settings are its seed (`seeds`). One that the store does not know yet becomes a row. One
that nobody changed since takes what the settings say now. One that an operator changed stays as the operator said, and
the difference is shown. Whoever needs the links asks `known`, a running mirror follows them (`registry`), and operators
change them (`operations`).

What a link lets through (`filters`), what operators have said of that since (`in_force`, `wishes`), what holds instead
of filters that clash (`standing`), and the algebra of names by which two filters can be compared (`names`): no record
may come back to where it was, and no two links may write one topic (`rules`); where two links go both ways under the
same names, each topic has a home (`homes`).
How a link stands is a word and a sentence (`link_state`).

Nothing here knows a cluster or a running mirror.

Records cross over: each twin partition becomes a prefix of its source's log, at the same offsets.

Five rooms carry: `driver` plans and remembers, `desk` decides which pump carries which partition, `pump` moves the
bytes of one lane inside a Spark task, `core` decides what that pump does next, and `lane` what becomes of each
partition. The steps of a plan are values (`planned`). Beside them: what follows besides records (`follow`), twins
behind data of others (`mapping`), what went wrong (`incidents`), operators' words (`control`), several links together
(`topology`), figures (`metrics`), and what verbs do (`operations`). What a record means is unknown here: batches cross
as bytes.

What becomes of an operator's word in a running mirror.

What holds is `links`' to say. A link's driver looks for a higher version every second (`ruling`) and passes on what
changed: topics join or leave their lanes, pumps learn their share of a throttle (`throttle`, `shares`) and who goes
first.

What the driver's desk decides: who may pump a lane, what is on it, and what each pump is told. Pure.

It takes events with the time as an argument, and gives commands as values. The driver's desk carries them out over
sockets and under a lock; the simulation has modelled pumps carry them out.

One process for its links: plans, makes twins, deals partitions out to lanes, and keeps what pumps tell.

`run` begins a `link_driver` for each link. It holds the link's lease (`term`), looks at both clusters
(`survey`), plans (`plan`), makes twins (`twins`) and hands lanes to tides (`tides`, on an `engine`). Pumps report to
the `desk`, which grants them time and passes a lane from one tide to the next, as `mirror.desk` decides. Accounts
become receipts (`recorder`), notes of it all stand on the target (`link_notes`), and how the link stands is said in
words of `links`.

What of a running mirror is measured and how it is told: Prometheus' metrics, and health.

Pumps' accounts and looks at the source's ends enter (`meters`, `looks`); readings of links, topics and partitions leave
at each scrape, with states and the ledger from the store (`collector`). The `table` names every metric once, for the
server and for its page alike. `words` are what `twinshore status` reads of it in the store. Of pumps and lanes this
knows only the words in which they account.

Several links together as they run: where a topic came from, and what really crosses.

`provenance` says of a topic by which clusters it came, by notes that mirrors leave on their targets (`target_notes`).
Notes are claims until something bears them out (`claims`, `descents`), and so mirrors with stores of their own know it
too. Each link's heart beats on its source and crosses like any topic (`heart`, `listening`); `picture` is drawn from
that. Of two links that go both ways under the same names, `homing` tells which carries a topic; what a switch said on
the clusters while the store was away is taken up first (`yielding`).
"""
