"""A client of the decision service: blocking (`Client`) and for asyncio (`AsyncClient`).

::

    with Client("http://127.0.0.1:8321") as client:
        decision = client.decide("ana", {"red": [1.0, 0.0], "blue": [0.0, 1.0]})
        client.reward(decision.decision_id, 1.0)

With declared features, arms are dicts of columns instead of vectors, and a log can be learnt::

        client.decide("ana", {"a1": {"genre": "jazz", "price": 9.5}}, context={"country": "fr"})
        client.load(dyclu.Log.read(frame, features=client.features(), ...), name="june")

A request that gets no answer, or a refusal that may be temporary, is sent again after a pause. That
is safe: every request has an id, made here if the caller gives none, and the service executes it
once. A call with many rows that fails in part raises `BatchError`, which has the results and the
rows with their ids: mended, they can be sent again.
"""

from dyclu.client.clients import AsyncClient, Client
from dyclu.client.logs import Loaded
from dyclu.client.requests import BatchError, Choice, ServiceError

__all__ = ["AsyncClient", "BatchError", "Choice", "Client", "Loaded", "ServiceError"]
