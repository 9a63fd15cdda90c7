"""What an operator asks of the proxy."""
