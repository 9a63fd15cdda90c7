"""What operators may ask of consumer groups, as functions: a module for each, in the shape of `fleet.operations`."""
