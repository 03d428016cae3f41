"""The HTTP API of the hub: routes, handlers and error envelopes."""
