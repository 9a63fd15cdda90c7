"""How reliable a cluster is: what is at risk, in which event, and which command mends it.

Nouns: look (what was `seen` of a cluster, at one moment), rule (a case, as data, and the function that says where it is
so), finding, policy (which rules and limits, with waivers that end), advice (the findings of one look). A live cluster
and, where there is one, the store enter; advice leaves, and settings of topics where an operator says `--fix`. It does
not know who asks, or how an advice is shown. `conduct` is about clients in place of clusters, by what proxies counted.
"""
