"""Settings of all tests."""

import signal

from hypothesis import settings

#: Spark is here because tests of the pipeline, of commands and of the query service use it.
pytest_plugins = ["tests.process_groups", "tests.spark_fixtures"]

# Wall-clock deadlines fail on a busy machine for no fault of the code; examples are bounded instead.
settings.register_profile("veen", deadline=None, max_examples=60, print_blob=True)
settings.load_profile("veen")

# A run in the background ignores interrupts, and the programs that tests start and interrupt would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
