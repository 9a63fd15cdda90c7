"""Rules about clients. Pure."""
