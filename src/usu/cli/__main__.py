"""``python -m usu.cli``: the same as the command ``usu``."""

from usu.cli import main

main()
