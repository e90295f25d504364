"""What the methods of speculative decoding on our own engine read, need and replay."""
