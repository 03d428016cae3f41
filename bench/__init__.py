"""Speed, measured honestly: every figure beside a floor or a peer from the same run."""
