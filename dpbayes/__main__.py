"""The ``dpbayes`` command, run by ``python -m dpbayes``."""

from dpbayes.cli import main

if __name__ == "__main__":
    main()
