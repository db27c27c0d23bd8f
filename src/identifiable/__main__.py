"""`python -m identifiable` is the command `identifiable`."""

from identifiable.cli import main

if __name__ == "__main__":
    main()
