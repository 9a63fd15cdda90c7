"""What a client's request becomes, and what its answer says: values in, values out. Pure."""
