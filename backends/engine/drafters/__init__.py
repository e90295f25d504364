"""Where drafts come from: one file for each kind of drafter."""
