"""Overlays of the operation schemas: access, agreements, delegation, recovery, publication, ledgers."""
