"""Drafters that offer several continuations at once, as a tree."""
