"""Which numbers say less than they seem to: doubtful, of overhead, or of the load alone."""
