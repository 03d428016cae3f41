"""Keys of a client: keystore, identity card, stream keys, and a vault for rows of files."""
