"""`python -m relive …` is the same as `relive …`."""

from relive.cli import main

main()
