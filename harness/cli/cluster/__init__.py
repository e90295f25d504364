"""Sweeps over the nodes of a Ray cluster: `run --executor ray`."""
