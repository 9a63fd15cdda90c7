"""Twinshore keeps Kafka clusters identical, offset by offset, and proves it."""

__version__ = "0.1.0"
