"""What runs inside vLLM: the model class and the scheduler that leave early."""
