"""What an operator asks of the model: a story that is played, and a search for the smallest schedule that does harm."""
