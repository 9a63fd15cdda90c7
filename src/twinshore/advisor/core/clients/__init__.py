"""The client audit: which client usage costs something, and which setting mends it.

Windows of traffic enter, findings leave. A rule is a row of data and one function.
"""
