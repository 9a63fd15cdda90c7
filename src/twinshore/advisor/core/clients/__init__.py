"""How clients use their clusters, judged by what proxies counted: which habits cost what, and which setting mends them.

Nouns: use (what one client did with one topic, summed up), rule (a habit, as data, and the function that says where it
is so), habit (a rule's case at one client). Windows of traffic enter, habits leave; `job` sums and judges them on
Spark.

Rules about clients. Pure.
"""
