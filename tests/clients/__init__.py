"""Clients of the service in other languages, and what all clients promise."""
