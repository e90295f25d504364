"""Commands of the regression gate: `compare` and `gate calibrate`."""
