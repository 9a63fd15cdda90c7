"""Rules about clusters, topics and groups. A rule is a row of data and one function."""
