"""How two logs are compared: rows, digests, differences. Values in, values out."""
