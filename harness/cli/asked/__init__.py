"""What requests ask and when they arrive, looked at before anything runs."""
