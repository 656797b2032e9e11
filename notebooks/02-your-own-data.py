# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own data
#
# From a table of clicks to a policy, and to a number that says what the policy would have earned.
# Replace the first table by your own: who saw what, what else could have been shown, and whether it
# was clicked.
#
# It needs `pip install 'dyclu[data,plots]' pandas`.

# %% tags=["parameters"]
impressions, seed = 12_000, 0

# %% [markdown]
# ## The tables
#
# Here both are drawn at random, so that the truth is known: 120 users, 40 items, and two kinds of
# users. Everybody likes low prices; one kind likes jazz and rock, the other jazz and folk. The shop
# showed one of six candidates at random, so the probability of what it showed is 1/6.

# %%
import numpy as np
import pandas as pd

rng = np.random.default_rng(seed)
items = pd.DataFrame(
    {
        "item": [f"i{n}" for n in range(40)],
        "category": ["jazz", "rock", "folk", "pop"] * 10,
        "price": np.round(np.exp(rng.normal(3, 0.5, 40)), 2),
    }
)
kind, who = rng.integers(2, size=120), rng.integers(120, size=impressions)
liking = np.array([[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0]])[:, np.tile(np.arange(4), 10)]
chance = 1 / (1 + np.exp(1.8 - liking + 0.8 * (np.log(items["price"].to_numpy()) - 3)))
offered = np.argsort(rng.random((impressions, 40)), axis=1)[:, :6]

table = pd.DataFrame(
    {
        "user": [f"u{n}" for n in who],
        "item": [f"i{n}" for n in offered[:, 0]],
        "candidates": [[f"i{n}" for n in row] for row in offered],
        "clicked": (rng.random(impressions) < chance[kind[who], offered[:, 0]]).astype(int),
        "propensity": 1 / 6,
    }
)
print(f"{table['clicked'].mean():.1%} of the impressions were clicked")
table.head()

# %% [markdown]
# ## Features
#
# Declare which columns of an item matter and of what kind they are. `fit` finds the categories and
# the scale of the numbers. A vector has one number per name.

# %%
import dyclu

features = dyclu.Features(
    arm={"category": "category", "price": {"kind": "number", "log": True}}
).fit(table, items=items)
features.names

# %% [markdown]
# ## A log, and policies that learn from it
#
# The first two thirds are learnt; the last third is for the evaluation. A wrong cell (a price that
# is no number, a candidate without a row) is refused with its row and column.


# %%
def read(rows):
    return dyclu.Log.read(
        rows,
        features=features,
        items=items,
        user="user",
        reward="clicked",
        arm="item",
        offered="candidates",
        propensity="propensity",
    )


cut = impressions * 2 // 3
learning, testing = read(table[:cut]), read(table[cut:])
atlas = dyclu.Atlas(features.dim).fit(learning)
shared = dyclu.LinUCB(features.dim, alpha=0.05, shared=True).fit(learning)

# %% [markdown]
# ## What they would have earned
#
# `compare` estimates, from rows that the policies have not seen, how many clicks per impression
# each of them would have had. The intervals are part of the answer, and so is the sentence below.

# %%
from dyclu.evaluate import compare, frozen

found = compare(
    testing,
    {"atlas": frozen(atlas, epsilon=0.05), "one model for all": frozen(shared, epsilon=0.05)},
)
found

# %% [markdown]
# In a real shop nobody knows the truth. Here we do: what each policy earns if it serves the same
# visits.

# %%
vectors = features.catalogue(items, id="item").vectors(list(items["item"]))


def truly(policy):
    earned = []
    for visitor, row in zip(who[cut:], offered[cut:], strict=True):
        chances = chance[kind[visitor], row]
        best = chances[policy.decide(f"u{visitor}", vectors[row]).arm]
        earned.append(0.95 * best + 0.05 * chances.mean())
    return float(np.mean(earned))


for name, policy in {"atlas": atlas, "one model for all": shared}.items():
    print(f"{name:18} {truly(policy):.3f}")

# %%
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(7, 2.3), layout="constrained")
for row, (name, policy) in enumerate({"atlas": atlas, "one model for all": shared}.items()):
    estimate = found[name].best
    axes.plot([estimate.interval.low, estimate.interval.high], [row, row], color="#0080c4", lw=4)
    axes.plot(truly(policy), row, "x", color="black", ms=9, label="the truth" if not row else None)
axes.axvline(found.logged.value, color="grey", ls=":", label="what was logged")
axes.set(yticks=(0, 1), yticklabels=("atlas", "one model for all"), ylim=(-0.6, 1.6))
axes.set(xlabel="clicks per impression, estimated from the log")
fig.legend(loc="outside upper right", ncols=2)
plt.show()

# %% [markdown]
# ## What the users like
#
# Each row is a taste that Atlas has found. Numbers are log odds: red makes a click more likely. A
# click says little, so after a hundred impressions of each user few users are certain, and a row
# tells how many rewards it was learnt from instead of how many users follow it.

# %%
atlas.plot(names=features.names)

# %% [markdown]
# ## Keep it
#
# The policy and its features go to one file. To decide over HTTP, see the guide "A shop".

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    path = Path(folder) / "shop.dyclu"
    atlas.save(path, features=features)
    again, names = dyclu.load(path), dyclu.Features.load(path)
again.decide("u3", vectors[:6])
