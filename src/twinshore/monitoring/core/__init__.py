"""Lag, alerts and link states: values in, values out."""
