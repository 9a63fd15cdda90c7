"""Rules, findings and reports: values in, values out."""
