"""Many runs of one experiment over time: the series of each metric, and where it changed."""
