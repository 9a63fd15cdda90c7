"""What replicates some partitions in one Spark task: sockets, threads and a clock around the decisions of `core`."""
