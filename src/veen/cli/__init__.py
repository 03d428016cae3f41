"""The ``veen`` program: commands parse arguments and print; the packages below do the work."""
