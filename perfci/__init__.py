__version__ = "0.1.0"  # read by the build; here, since a suite's own environment has perfci on its path alone
