"""What training of anything at a model's exits has in common."""
