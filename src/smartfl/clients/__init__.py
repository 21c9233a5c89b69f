"""Client algorithms: what a client does between receiving the global model and sending its own."""
