"""Delivery of events to a hub: spool, journal and shipper."""
