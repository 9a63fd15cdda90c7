"""The hands of a switch: a module for each thing that they touch.

A record enters, what came of the deed leaves. Each deed may be done twice, and knows nothing of those around it.
"""
