"""Overlays that come with the protocol: CRDTs, RPC, mirrors and snapshots."""
