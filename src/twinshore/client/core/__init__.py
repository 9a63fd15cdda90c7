"""What a client decides: values in, values out."""
