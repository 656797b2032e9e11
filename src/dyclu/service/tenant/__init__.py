"""One tenant: how it starts, serves, erases users, and keeps its files in order.

`tenant` answers requests. Each other file is one job on the tenant's files; `files` says whose turn
it is. Nothing here knows HTTP, and what a line means is decided in `engine`.
"""
