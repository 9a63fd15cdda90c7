"""Which changes bring a target's settings, ACLs and topics in line: values in, values out."""
