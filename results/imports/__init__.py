"""What other tools measured, as trials of ours."""
