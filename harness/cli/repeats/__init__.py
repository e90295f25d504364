"""Repeats beyond those that the experiment asks for."""
