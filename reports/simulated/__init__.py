"""The page of figures that were simulated, each beside what a paper says."""
