"""Claims tried on real parts: `make show-crossing`, `make show-topics`, `make show-groups`, and parts of these."""
