"""Other brokers, each started here as a process on loopback, with the client that Python uses for it."""
