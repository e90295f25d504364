"""Data sets in files of the user's: which files, and their records."""
