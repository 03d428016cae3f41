"""Events on their way to a hub: spool, journal and shipper."""
