"""One short function per command. Each loads what it needs itself, so `--help` is quick."""
