"""`python -m quiver.cli` is `quiver`."""

from quiver.cli import main

if __name__ == "__main__":  # worker processes of the demo import this file too
    main()
