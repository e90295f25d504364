"""The user's cache folder."""
