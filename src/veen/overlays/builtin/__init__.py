"""Built-in overlays: CRDTs, RPC, mirrors and snapshots."""
