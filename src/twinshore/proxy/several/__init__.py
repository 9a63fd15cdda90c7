"""Several processes that serve as one proxy, at the same ports: the system deals out connections among them.

Whoever was started by an operator serves nobody: the **keeper** starts a **part** for each core, hears what it says,
starts it again where it has ended or stands still, and answers for all at /metrics and /health. Parts know nothing of
each other: each is a separate proxy, as those on other machines are.
"""
