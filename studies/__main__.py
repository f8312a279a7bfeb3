"""Entry point of ``python -m studies``."""

from dpbayes.core.interrupts import listen


def main() -> None:
    """Run a study; signal handlers are installed before all other imports."""
    listen()
    from dpbayes.cli.app import run_command
    from studies.command import app

    run_command(app, "python -m studies")


if __name__ == "__main__":
    main()
