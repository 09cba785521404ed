"""The version of this package, which goes with that of the server."""

VERSION = "0.2.0"
