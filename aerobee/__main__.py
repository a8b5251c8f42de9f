"""`python -m aerobee`: the same command line."""

from aerobee.cli.main import main

main()
