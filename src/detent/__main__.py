"""`python -m detent` is `detent`."""

from detent.cli import main

if __name__ == "__main__":
    main()
