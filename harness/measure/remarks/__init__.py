"""Remarks on a trial that leave it valid."""
