"""The ``veen`` program: parsing here, doing in the packages below."""
