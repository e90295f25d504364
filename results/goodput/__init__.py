"""The highest rate at which requests still meet an objective: found by probing."""
