"""Home records and followers: which record stands, and what a client does about it. Values in, values out."""
