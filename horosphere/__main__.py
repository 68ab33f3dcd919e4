"""python -m horosphere, also under torchrun."""

import sys

from horosphere.cli import main

if __name__ == "__main__":
    sys.exit(main())
