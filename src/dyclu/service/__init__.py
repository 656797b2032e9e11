"""The decision service: durable, exactly-once, over HTTP; ``dyclu serve`` runs it.

Read in this order: `records` (what the journal holds), `state` (what follows from it), `engine`
(what is accepted), `store` (how it survives), `tenant` (the three together), `app` (HTTP).
"""
