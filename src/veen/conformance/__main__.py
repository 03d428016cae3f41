"""``python -m veen.conformance``."""

import sys

from veen.conformance.adapter import main

if __name__ == "__main__":
    sys.exit(main())
