from hypothesis import settings

# A first example may load a library; examples here are bounded by their number, not by a clock.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
