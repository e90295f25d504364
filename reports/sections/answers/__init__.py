"""Whether answers are the same and right."""
