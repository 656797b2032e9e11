"""The decision service: durable, exactly-once, over HTTP; ``dyclu serve`` runs it.

Read in this order: `records` (what the journal holds), `state` (what follows from it), `engine`
(what is accepted), `store` and `commit` (how it survives), `tenant` (all of them together), `app`
(HTTP).
"""
