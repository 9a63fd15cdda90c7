"""Where a client learns that topics moved: from the clusters, or from a configuration service."""
