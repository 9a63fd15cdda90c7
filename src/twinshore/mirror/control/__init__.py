"""What operators change on running links: filters, pauses, throttles, priorities.

Settings say what a link begins with; rows in the store win (`in_force`). A verb turns an operator's word into rows
(`wishes`), a link's driver looks for a higher version every second (`ruling`) and passes on what changed: topics join
or leave their lanes, pumps learn their share of a throttle (`shares`, `buckets`) and who goes first.
"""
