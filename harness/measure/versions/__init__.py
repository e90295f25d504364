"""Two versions of this code, measured side by side."""
