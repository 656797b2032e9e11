"""Tools beside a running service: replay a journal, export it, and test under load."""
