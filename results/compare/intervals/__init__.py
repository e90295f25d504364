"""Means of paired measurements with intervals that hold on a machine that wanders."""
