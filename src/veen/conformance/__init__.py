"""The conformance adapter: this library behind JSON lines, for language-independent test suites.

See docs/reference/conformance.md. There is no protocol logic in here: an operation is a call.
"""
