"""Topics move from the cluster where they are written to another one, and back: planned, forced, or as a drill.

A plan of steps is decided purely; each step may be done twice. Settings, the store and both clusters enter; a topic
with another home leaves, or one that stayed. Clients learn of it from `twinshore.homes`, the proxy or a configuration
service.
"""
