"""Inside of the toolset `http`: from arguments to a request, and the service that gets it."""
