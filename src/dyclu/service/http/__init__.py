"""The HTTP edge: the server's settings, keys, routes, and the answers to GET.

It turns a request into a call of a `Tenant`, and the result into a response. It decides nothing
about users or policies. Add an endpoint as an entry of the table in `calls`.
"""
