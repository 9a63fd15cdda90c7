"""Admin requests, each with a rule of its own: which cluster answers it, which all answer, and which are refused.

A judge takes a request and what is known of the clusters, and gives a move. It knows no socket and no session. Answers
of several clusters are joined, and one that is away costs only its own part. What is refused says so in the request's
own answer, so that a client's library can show it.
"""
