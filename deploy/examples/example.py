"""A decision and its reward, with the Python client: pip install 'dyclu[client]'."""

import os

from dyclu.client import Client

url = os.environ.get("DYCLU_URL", "http://127.0.0.1:8321")
user = os.environ.get("DYCLU_USER", "ana")

with Client(url) as client:
    decided = client.decide(user, {"red": [1.0, 0.0], "blue": [0.0, 1.0]})
    print("show", decided.arm)

    click = f"{decided.decision_id}-click"
    for _ in ("first", "again"):  # the second one is recognised by its id
        rewarded = client.reward(decided.decision_id, 1.0, reward_id=click)
        print("learnt before" if rewarded["repeated"] else "learnt")
