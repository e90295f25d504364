"""Thresholds with a guarantee, chosen on held-out prompts."""
