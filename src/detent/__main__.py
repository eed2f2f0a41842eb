"""`python -m detent` is `detent`."""

from .cli import main

if __name__ == "__main__":
    main()
