"""What operators ask about a cluster's reliability: one function for each verb."""
