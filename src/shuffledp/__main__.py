"""``python -m shuffledp``."""

from shuffledp.cli.main import main

if __name__ == "__main__":
    main()
