"""The folder of one run, and the formats of what lies in it."""
