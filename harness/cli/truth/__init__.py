"""Known truth that `selftest` holds the harness against."""
