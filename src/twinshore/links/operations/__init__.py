"""What operators ask of links as such: which there are, and that one is added, changed, turned or removed."""
