"""The results of a run, cell by cell: tables for terminals and files."""
