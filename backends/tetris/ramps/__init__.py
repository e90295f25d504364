"""Who leaves a classifier at which ramp, and which ramps are asked: logic alone, no model."""
