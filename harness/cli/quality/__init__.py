"""Answers that are asked for their quality alone."""
