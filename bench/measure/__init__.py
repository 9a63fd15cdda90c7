"""Figures of rates, delays and CPU, each beside what else a user could take or what is the least possible."""
