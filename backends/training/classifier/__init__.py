"""Training of the exit classifier."""
