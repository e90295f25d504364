"""`run --against`: this version of the code and another one, side by side."""
