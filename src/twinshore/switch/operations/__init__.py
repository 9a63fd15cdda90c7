"""What operators may ask of switches, as functions: a module for each, in the shape of `config.model`."""
