"""Our decoder: the model's layers cut into segments, its cache, and what runs them."""
