"""The decision service: durable, exactly-once, over HTTP; ``dyclu serve`` runs it.

Read in this order: `engine.lines` (what the journal holds), `engine.state` (what follows from it),
`engine.engine` (which requests are accepted), `disk.journal` and `disk.commit` (how lines are
written), `tenant` (all of them together), `http.app` (HTTP).
"""
