"""Training of the bundled target and draft model."""
