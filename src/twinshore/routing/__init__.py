"""Where topics are written, as the clusters themselves say it, and how clients follow.

Nouns: home line (a topic's home in a term, and what is being done about it), word (term and step: the higher one
stands), claim (which switch has a topic), follower (a client that writes where the lines say). Lines of two topics that
lie on each cluster concerned enter, whoever wrote them; what stands, what a client must do and for whom a switch must
wait leave. A client needs no store and no mirror for that. What a switch does, and why, is not known here.
"""
