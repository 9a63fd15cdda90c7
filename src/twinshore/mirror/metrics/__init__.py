"""What of a running mirror is measured and how it is told: Prometheus' metrics, and health.

Pumps' accounts and looks at the source's ends enter (`meters`, `looks`); readings of links, topics and partitions leave
at each scrape, with states and the ledger from the store (`collector`). The `table` names every metric once, for the
server and for its page alike. `words` are what `twinshore status` reads of it in the store. Of pumps and lanes this
knows only the words in which they account.
"""
