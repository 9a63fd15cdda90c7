"""Where a client hears that its topics have moved: from the clusters themselves."""
