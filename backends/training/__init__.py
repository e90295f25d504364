"""Training of the bundled models, and of exit heads for any model."""
