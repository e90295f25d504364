"""EAGLE-3: one trained layer over the model's own hidden states drafts."""
