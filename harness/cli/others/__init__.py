"""Results of other tools, in and out."""
