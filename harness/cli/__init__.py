"""The command line: the only folder that joins all others."""
