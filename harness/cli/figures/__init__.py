"""`simulate` with experiment files: figures of simulated numbers beside a paper's."""
