"""Generators of rows whose answers are labels."""
