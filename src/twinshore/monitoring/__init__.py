"""How far a target is behind its source, for how long, and who must be told.

Nouns: reading (both ends of one partition at one tick, and what a group has committed), window (the published
algorithm's four latest readings), sighting (when an end of the source was first seen), view (a place's lag and recovery
point), alarm (a topic of a link that is behind, with its history). Readings of two clusters enter, whoever mirrors
them; views, alarms and sentences leave. The decisions are pure: `readings`, `windows`,
`arrival`, `alarms`. The hands around them ask clusters, keep the store and tell operators. It moves
no record and knows of no pump.

How links stand, by what every other room left in the store: the mirror's last word, receipts, incidents, proofs.

Nouns: view (a link as it stands now, with its sentences), lag (by ends of the source that somebody saw, with their
age). A store and settings enter, views leave; a source is asked for its ends only where no mirror looks at it any more.
It does not know who asks, or how a view is shown.

What operators may ask about delays, as functions: a module for each, in the shape of `config.model`.

They ask the store alone, by what a monitor saw last.

Both ways to see a delay, on the same made-up traffic: how soon each finds a fault, how often each cries for nothing.

A trace is one partition's two ends, second by second, from a seed; a trial (`trial`) lets both algorithms
watch it with the settings' own periods, thresholds and manners, and counts. Operators try their thresholds with it.
"""
