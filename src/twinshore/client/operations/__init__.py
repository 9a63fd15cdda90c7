"""What an operator may ask for of a spool that a producer left: to look at it, to send it, to drop a topic of it."""
