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
# # A population that changes
#
# Forty people visit a shop again and again. There are five tastes among them, and from time to
# time somebody changes from one taste to another. Nobody tells the shop any of this. This notebook
# draws such a population, lets four policies serve it, and looks at what they found out.
#
# It needs `pip install 'dyclu[plots]'`.

# %% tags=["parameters"]
users, rounds, seed = 40, 200, 1

# %% [markdown]
# ## The truth, which no policy sees
#
# Each row of the picture is a person, each colour a taste. Time goes from left to right. Where the
# colour changes, the person has changed.

# %%
import matplotlib.pyplot as plt

import dyclu
from dyclu.sim import Population, play, regret, summary

world = Population(
    users=users, parameters=5, dim=10, rounds=rounds, shortest=rounds // 3, longest=rounds // 2
).world(seed=seed)

fig, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.imshow(world.truth, aspect="auto", cmap="Set2", interpolation="none")
axes.set(xlabel="rounds of each user", ylabel="user", title="Who has which taste, and when")
plt.show()

# %% [markdown]
# ## Four policies in this world
#
# In each round one person visits, and ten things could be shown. A policy gets their features (ten
# numbers each), shows one, and gets a noisy reward. `play` lets a policy serve all rounds.
#
# - `Uniform` chooses at random.
# - `LinUCB` learns for every user alone, and never forgets.
# - `DyClu` is the published algorithm: it notices changes, and shares data between alike users.
# - `Atlas` keeps one model per taste, and finds out which of them each user follows.

# %%
policies = {
    "Uniform": dyclu.Uniform(10),
    "LinUCB": dyclu.LinUCB(10),
    "DyClu": dyclu.DyClu(10),
    "Atlas": dyclu.Atlas(10),
}
runs = {name: play(policy, world) for name, policy in policies.items()}

# %% [markdown]
# **Regret** is the reward that was lost compared with the best choice of each round. A line that
# becomes flat has learnt; a line that stays steep goes on losing.

# %%
fig, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for name, run in runs.items():
    axes.plot(regret(run)[users - 1 :: users], label=name)
axes.set(xlabel="rounds of each user", ylabel="regret of all users", ylim=0)
axes.legend()
plt.show()

# %%
for name, run in runs.items():
    found = summary(run)
    print(
        f"{name:8} regret {found.regret:7.1f}   changes: {found.alarms_true:3} noticed, "
        f"{found.alarms_missed:3} missed, {found.alarms_false:3} false"
    )

# %% [markdown]
# ## What Atlas found
#
# A policy is shown as a table of its options and of what it has learnt.

# %%
atlas = policies["Atlas"]
atlas

# %% [markdown]
# Its models are the tastes that it found. Each row is a model, each column a feature: red is liked,
# blue is not. (There are five tastes; a model with no users, or a few, may be left over.)

# %%
atlas.plot()

# %% [markdown]
# ## One user's life
#
# Somebody who changed, as Atlas saw it. Time counts the rewards of all users, because that is the
# clock of a policy. Grey is the time in which Atlas was not certain yet.

# %%
user = max(range(users), key=lambda one: len(world.changes(one)))
print("changed in truth at", [int(users * time + user) for time in world.changes(user)])
print("noticed at         ", [change.at for change in atlas.changes if change.user == user])
atlas.plot(user)

# %% [markdown]
# ## Next
#
# [Your own data](02-your-own-data.ipynb) begins with a table of clicks,
# [compare policies](03-compare-policies.ipynb) looks at more worlds, and
# [inside Atlas](04-inside-atlas.ipynb) watches a change as it happens.
