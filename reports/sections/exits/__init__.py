"""Backends that leave the model early. Which these are is told by what they count, not by names."""
