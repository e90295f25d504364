"""What the parts of a step cost, and what early predictions save at these costs."""
