"""Early exit on our own engine: each sequence leaves by itself."""
