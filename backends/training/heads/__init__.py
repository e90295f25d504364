"""Training of exit heads."""
