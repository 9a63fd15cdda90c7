"""Topics move from the cluster where they are written to another one, and back: planned, by force, or as a drill.

Nouns: home (where a topic is written), old and new home, deed (what a switch does next, or undoes), record (all that
whoever goes on with a switch must know), point (the offset at which a partition changes homes). Settings, the store and
both clusters enter; a topic at home elsewhere leaves, or one that has stayed where it was. What is to be done next is
decided purely (`decision`); `hands` do it. It does not know who asks, nor how clients are told to reconnect: they read
the home.

The hands of a switch: a module for each thing that they touch.

A record enters, what came of the deed leaves. Each deed may be done twice, and knows nothing of those around it.
"""
