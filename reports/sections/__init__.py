"""The parts of the report, a file each."""
