"""The processes in which stages run: on this machine, or as actors of a Ray cluster."""
