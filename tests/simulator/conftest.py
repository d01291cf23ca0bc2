"""Property tests without a deadline: the first example may have to compile what it tests."""

from hypothesis import settings

settings.register_profile("compiled", deadline=None, max_examples=100)
settings.load_profile("compiled")
