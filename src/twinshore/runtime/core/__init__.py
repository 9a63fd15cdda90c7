"""Which background task runs next: values in, values out."""
