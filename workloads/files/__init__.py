"""Which files of a folder hold the rows that an experiment asks for."""
