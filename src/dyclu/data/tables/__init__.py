"""Tables from anywhere, read in batches of columns; no other room of data is known here."""
