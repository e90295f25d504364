"""Whether a backend's text is the reference's."""
