"""Clients of several makes and versions, each in a process of its own, and the steps that all of them try.

`trying` has the steps and knows no client; each `with_` drives one make. They run where nothing of Twinshore is
installed, and so import the standard library, one client and each other alone.
"""
