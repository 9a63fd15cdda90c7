"""Which committed offsets follow from both sides: values in, values out."""
