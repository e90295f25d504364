"""What runs the layers, on whatever device."""
