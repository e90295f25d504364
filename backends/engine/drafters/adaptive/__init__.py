"""As many drafts as pay."""
