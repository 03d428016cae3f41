"""The Merkle Mountain Range of a label, and its proofs."""
