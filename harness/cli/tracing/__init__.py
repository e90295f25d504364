"""The command `trace`."""
