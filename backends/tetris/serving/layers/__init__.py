"""What runs a stage's layers, on whatever device."""
