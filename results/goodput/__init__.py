"""What a system takes: the highest rate within an objective, and from idle to saturation."""
