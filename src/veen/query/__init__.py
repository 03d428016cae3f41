"""Query descriptors, rows, digests and access policies; pure (QRY lines)."""
