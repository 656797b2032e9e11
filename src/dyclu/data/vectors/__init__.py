"""From declared columns to vectors: what is declared, fitted, laid out and computed."""
