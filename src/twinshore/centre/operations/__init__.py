"""What an operator may ask for."""
