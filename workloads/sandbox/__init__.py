"""Runs programs that a model wrote, locked in."""
