"""Prompts of the user's own: a file of chats (`jsonl`), exported conversations (`sharegpt`), and
made-up prompts of chosen lengths (`synthetic`)."""
