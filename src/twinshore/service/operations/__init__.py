"""What an operator may ask for that is about no link and no topic: the store's own tables."""
