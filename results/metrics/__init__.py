"""Metrics of one trial alone."""
