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
"""
