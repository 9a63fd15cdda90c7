"""How far a target is behind its source, for how long, and who must be told.

Nouns: reading (both ends of one partition at one tick, and what a group has committed), window (the published
algorithm's four latest readings), sighting (when an end of the source was first seen), view (a place's lag and recovery
point), alarm (a topic of a link that is behind, with its history). Readings of two clusters enter, whoever mirrors
them; views, alarms and sentences leave. The decisions are pure: `readings`, `windows`,
`arrival`, `alarms`. The hands around them ask clusters, keep the store and tell operators. It moves
no record and knows of no pump.
"""
