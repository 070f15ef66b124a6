"""The hand-over over HTTP: sources out, results in, and what is stored as JSON for other programs.

docs/serving.md has the protocol. Nothing here writes to the database: a result waits in the incoming folder.
"""
