"""HTTP/1.1 for the hub: connections with limits, a table of routes, and nothing of what a hub is.

The server is our own, on httptools: it cuts off slow and greedy clients at every step, and answers a
submit without a task of its own (docs/adr/0008).
"""
