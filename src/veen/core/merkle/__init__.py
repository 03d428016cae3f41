"""The Merkle Mountain Range of a label, and the proofs that it gives."""
