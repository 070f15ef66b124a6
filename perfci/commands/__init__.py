"""Commands by subject, one file each: `register(app)` adds them to the command line."""
