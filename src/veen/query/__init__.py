"""What a query is: descriptors, rows, digests and who may ask; pure (QRY lines)."""
