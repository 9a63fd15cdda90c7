"""Filters, plans, the coordinator's decisions, incidents' kinds: values in, values out."""
