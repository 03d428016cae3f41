"""The conformance adapter: this library behind JSON lines, for suites that know nothing of Python.

See docs/reference/conformance.md. There is no protocol logic in here: an operation is a call.
"""
