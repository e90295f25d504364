"""The first ten minutes: an experiment without a file, a commented one, what a file may hold."""
