"""`python -m oneof` is `oneof`."""

from oneof.cli import main

if __name__ == "__main__":
    main()
