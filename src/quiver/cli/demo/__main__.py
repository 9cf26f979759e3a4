"""`python -m quiver.cli.demo [--json] [directory]`."""

import argparse
import sys

from quiver.cli.demo.command import main

if __name__ == "__main__":  # worker processes import this file too
    parser = argparse.ArgumentParser(prog="quiver demo", description="An order system, hurt.")
    parser.add_argument("data", nargs="?", help="an empty directory; a temporary one if not given")
    parser.add_argument("--json", action="store_true", help="only the result, as JSON")
    options = parser.parse_args()
    sys.exit(main(options.data, json=options.json))
