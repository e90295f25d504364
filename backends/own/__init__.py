"""Our own engine as backends."""
