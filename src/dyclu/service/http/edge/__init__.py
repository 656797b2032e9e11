"""Between the network and the application: the server, and what requests may cost."""
