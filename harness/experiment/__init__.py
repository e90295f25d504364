"""An experiment file becomes trials."""
