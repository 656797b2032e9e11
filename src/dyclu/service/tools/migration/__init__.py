"""Moving a data folder to PostgreSQL: `lines` cuts journals, `verify` compares, `migrate` does it.

What is found to differ is never put in force: a tenant moves in one transaction, or not at all.
"""
