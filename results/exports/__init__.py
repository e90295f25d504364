"""Our trials as other tools store theirs."""
