"""``python -m promptkit.cli``."""

from promptkit.cli import main

main()
