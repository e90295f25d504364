"""The command ``goodput``."""
