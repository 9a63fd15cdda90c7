"""What a request of a client becomes, and what its answer says: values in, values out. Pure.

`session` is asked for a `move` for each request. `layout` says by which numbers and ports clients know brokers, `seen`
where topics and groups are. The other modules each know some of the APIs.
"""
