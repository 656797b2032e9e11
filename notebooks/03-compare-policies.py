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
# # Compare policies
#
# Which policy is best depends on the world. This notebook lets several policies, one of them
# written here, serve the same users in four worlds, several times, and says which differences are
# more than chance.
#
# It needs `pip install 'dyclu[plots]' pandas`.

# %% tags=["parameters"]
users, rounds, seeds = 30, 150, 3

# %% [markdown]
# ## The worlds
#
# `Wild` describes a population by its options. The same options and seed give the same world to
# every policy: the same users, arms and noise. So differences between policies are paired, and
# much less noisy than the regrets themselves.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import dyclu
from dyclu.sim import Wild, play, summary

size = dict(users=users, rounds=rounds, dim=8, parameters=4)
worlds = {
    "users change": Wild(**size, noise=0.2, shortest=rounds // 3, longest=rounds // 2),
    "users stay": Wild(**size, noise=0.2, shortest=10**9, longest=10**9),
    "nobody is alike": Wild(**{**size, "parameters": None}, noise=0.2),
    "clicks": Wild(**size, rewards="logistic", offset=-1.0, slope=4.0),
}

# %% [markdown]
# ## The policies
#
# A policy of your own needs a `dim` and a few methods; `WithoutUsers` has those that a policy
# without users and groups does not need. This one shows, for everybody, what was best on average.

# %%
from dyclu.policies.common.plain import WithoutUsers


class Popular(WithoutUsers):
    """One ridge regression for all users, without exploration."""

    def __init__(self, dim):
        self.dim, self.stats = dim, dyclu.Stats.empty(dim)

    def decide(self, user, arms):
        theta = np.linalg.solve(self.stats.gram + np.eye(self.dim), self.stats.moment)
        arm = int(np.argmax(arms @ theta))
        return dyclu.Decision(user, arm, float(arms[arm] @ theta), 0.0, theta)

    def learn(self, user, context, reward):
        self.stats += dyclu.Stats.of(context, reward)
        return dyclu.Outcome(user)


makers = {
    "Uniform": dyclu.Uniform,
    "Popular": Popular,
    "LinUCB": lambda dim: dyclu.LinUCB(dim, alpha=0.3),
    "DyClu": dyclu.DyClu,
    "Atlas": dyclu.Atlas,
}

# %% [markdown]
# ## All of them everywhere

# %%
rows = []
for world_name, setting in worlds.items():
    for seed in range(seeds):
        world = setting.world(seed=seed)
        for name, make in makers.items():
            found = summary(play(make(world.setting.dim), world))
            rows.append(
                (world_name, seed, name, found.regret, found.alarms_true, found.alarms_false)
            )
results = pd.DataFrame(rows, columns=["world", "seed", "policy", "regret", "noticed", "false"])
results.pivot_table(index="world", columns="policy", values="regret", sort=False).round(1)

# %% [markdown]
# Divided by the regret of random choice, the worlds become comparable.

# %%
regrets = results.pivot_table(
    index=["world", "seed"], columns="policy", values="regret", sort=False
)
shares = regrets.div(regrets["Uniform"], axis=0)
means = shares.groupby(level="world", sort=False).mean()
fig, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
width = 0.8 / (len(makers) - 1)
for i, name in enumerate(name for name in makers if name != "Uniform"):
    axes.bar(np.arange(len(means)) + i * width, means[name], width, label=name)
axes.set_xticks(np.arange(len(means)) + 0.4 - width / 2, means.index)
axes.set(ylabel="regret / regret of random choice")
fig.legend(loc="outside upper center", ncols=4)
plt.show()

# %% [markdown]
# ## Is it more than chance?
#
# For each world: Atlas's regret minus that of the best other policy, as a share of random choice's,
# with the standard error over the seeds. With few seeds a difference below two or three standard
# errors says nothing.

# %%
others = means.drop(columns=["Atlas", "Uniform"]).idxmin(axis=1)
verdicts = []
for world_name, other in others.items():
    paired = shares.loc[world_name, "Atlas"] - shares.loc[world_name, other]
    error = paired.std(ddof=1) / np.sqrt(len(paired)) if len(paired) > 1 else np.nan
    verdicts.append((world_name, other, paired.mean(), error))
pd.DataFrame(verdicts, columns=["world", "best other", "difference", "standard error"]).round(3)

# %% [markdown]
# ## Were changes noticed?

# %%
changing = results[results["world"] == "users change"]
changing.groupby("policy", sort=False)[["noticed", "false"]].mean().round(1)

# %% [markdown]
# For larger comparisons, the command `dyclu simulate` runs many seeds in parallel and stores every
# result, and `dyclu reproduce wild` runs thirty worlds.
