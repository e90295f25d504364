"""What turns texts into token ids and back."""
