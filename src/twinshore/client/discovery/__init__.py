"""Where a client learns that its topics have moved: from the clusters, or from a configuration service."""
