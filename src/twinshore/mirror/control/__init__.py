"""What becomes of an operator's word in a running mirror.

What holds is `links`' to say. A link's driver looks for a higher version every second (`ruling`) and passes on what
changed: topics join or leave their lanes, pumps learn their share of a throttle (`throttle`, `shares`) and who goes
first.
"""
