"""The harness: contracts, measuring, experiments, and the command line."""
