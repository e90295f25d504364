"""What an OpenAI-compatible server can do, found out before anything is measured against it."""
