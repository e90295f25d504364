"""Models that draft for themselves with some sublayers left out: which, and how to find them."""
