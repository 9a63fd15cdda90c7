"""What operators ask of links as such: which there are, and that one is added, changed, turned or removed.

What operators may ask of links, as functions: a module for each. None of it knows who asks, or how it is shown.

What is asked enters as a frozen value, beside the settings and the store. `plan` gives the steps out, each with its
sentence, and changes nothing; `act` does them. What only looks is a function that returns a value, with `as_values` for
programs where that is not the value's own fields.
"""
