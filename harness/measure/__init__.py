"""Runs trials on engines in processes of their own, and judges whether to believe them."""
