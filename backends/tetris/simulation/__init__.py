"""Early-exit serving on any number of devices, event by event. Its numbers are simulated: times
come from a profile, and no model runs."""

PROVENANCE = "simulation"
