"""Settings of all tests."""

from hypothesis import settings

# Wall-clock deadlines fail on a busy machine for no fault of the code; examples are bounded instead.
settings.register_profile("veen", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("veen")
