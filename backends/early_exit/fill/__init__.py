"""Keys and values of the layers that an early exit leaves out."""
