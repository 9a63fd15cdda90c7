"""What a switch does next, and what may be lost: values in, values out."""
