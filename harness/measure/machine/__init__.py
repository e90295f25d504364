"""The machine that is measured on: what it is, how it does, and how a process is tuned to it."""
