"""A configuration centre of Twinshore's own: what each application's clients are told, kept in the store and served.

`offer` says, purely, what may be told and what a token is. `board` is what a server knows of the store, and who waits
for news of it. `serving` is the process, and answers requests. An operator's verbs are in `operations`.

What an operator may ask for.
"""
