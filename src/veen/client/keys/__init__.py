"""Keys of a client: keystore, identity card, stream keys and the vault of rows."""
