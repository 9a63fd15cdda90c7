"""What operators ask of switches: one module for each verb."""
