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
# # Inside Atlas
#
# Atlas believes that there are some tastes in the population, that each user has one of them, and
# that users change now and then. After each reward it updates, for the user, the probability of
# each taste: the *belief*. This notebook watches the belief of one user from the first reward,
# through a change, to the end. The pictures are interactive: move the mouse over them.
#
# It needs `pip install 'dyclu[plots]' plotly`.

# %% tags=["parameters"]
users, rounds, seed = 30, 120, 3

# %% [markdown]
# ## A population, and one user to watch
#
# Everything is as in [the first notebook](01-a-population-that-changes.ipynb), but here we keep
# what Atlas believes about one user before each of their visits.

# %%
import numpy as np
import plotly.graph_objects as go

import dyclu
from dyclu.sim import Population

world = Population(
    users=users, parameters=4, dim=6, rounds=rounds, shortest=rounds // 3, longest=rounds // 2
).world(seed=seed)
watched = next(user for user in range(users) if len(world.changes(user)) >= 1)

atlas = dyclu.Atlas(6)
beliefs, decisions, models = [], [], []
for visit in world:
    decision = atlas.decide(visit.user, visit.arms)
    if visit.user == watched:
        beliefs.append(atlas.locate(watched))
        decisions.append((decision.mean, decision.width, visit.reward(decision.arm)))
        models.append(len(atlas.models))
    atlas.learn(visit.user, visit.arms[decision.arm], visit.reward(decision.arm))

changes = [int(time) for time in world.changes(watched)]
print(f"user {watched} changed at visit {', '.join(map(str, changes))}")

# %% [markdown]
# ## The belief
#
# Each coloured layer is a model, the grey one is "a taste that I do not know yet". At the first
# visit nothing is known. After some rewards one model has nearly all of the probability: the user
# is *located*. The dotted lines are the true changes.

# %%
certain = {one for found in beliefs for one, chance in found.belief.items() if chance > 0.05}
figure = go.Figure()
figure.add_scatter(
    y=[1.0 if found.new is None else found.new for found in beliefs],
    name="a new taste", stackgroup="belief", line={"width": 0}, fillcolor="#bbbbbb",
    hovertemplate="%{y:.1%}",
)  # fmt: skip
for model in sorted(certain):
    figure.add_scatter(
        y=[found.belief.get(model, 0.0) for found in beliefs],
        name=f"model {model}", stackgroup="belief", line={"width": 0}, hovertemplate="%{y:.1%}",
    )  # fmt: skip
for change in changes:
    figure.add_vline(change, line_dash="dot")
figure.update_layout(
    title=f"What Atlas believes about user {watched}", xaxis_title="visits of this user",
    yaxis={"title": "probability", "tickformat": ".0%", "range": [0, 1]}, hovermode="x unified",
    template="plotly_white", height=380,
)  # fmt: skip
figure

# %% [markdown]
# ## A change as it happens
#
# The visits around the first change, one per row. At the change, rewards stop being what the old
# model predicts; a few rewards later Atlas gives the old model up, and believes in another one, or
# in a new taste. `surprise` is the distance between reward and prediction.

# %%
first = changes[0]
for visit in range(max(first - 3, 0), min(first + 12, len(beliefs))):
    found, (mean, width, reward) = beliefs[visit], decisions[visit]
    model, chance = max(found.belief.items(), key=lambda item: item[1], default=(None, 0.0))
    here = "<- changed" if visit == first else ""
    print(
        f"visit {visit:3}   likeliest model {model!s:>4} ({chance:6.1%}), new {found.new:6.1%}   "
        f"predicted {mean:5.2f}, reward {reward:5.2f}, surprise {abs(reward - mean):4.2f} {here}"
    )

# %%
predicted, _, rewards = np.array(decisions).T
figure = go.Figure()
figure.add_scatter(y=predicted, name="predicted", mode="lines")
figure.add_scatter(y=rewards, name="reward", mode="markers", marker={"size": 5})
for change in changes:
    figure.add_vline(change, line_dash="dot")
figure.update_layout(
    title="Predicted and observed rewards of this user", xaxis_title="visits of this user",
    template="plotly_white", height=320,
)  # fmt: skip
figure

# %% [markdown]
# ## The models
#
# A model is a taste with its uncertainty. On this map, similar tastes are close: its axes are the
# two directions in which the true tastes (crosses) differ most. A disc is larger with more users.

# %%
centre = world.parameters.mean(axis=0)
plane = np.linalg.svd(world.parameters - centre)[2][:2].T
tastes = (world.parameters - centre) @ plane
known = [model for model in atlas.models if model.users]
places = np.array([(model.estimate - centre) @ plane for model in known])
deviations = [float(np.sqrt(np.trace(plane.T @ model.covariance @ plane))) for model in known]
figure = go.Figure()
figure.add_scatter(
    x=places[:, 0], y=places[:, 1], mode="markers", name="models of Atlas",
    marker={"size": [12 + 3 * model.users for model in known], "opacity": 0.7},
    text=[
        f"model {model.id}<br>{model.users} users, {model.size} rewards"
        f"<br>± {deviation:.3f} on this map"
        for model, deviation in zip(known, deviations, strict=True)
    ],
    hoverinfo="text",
)  # fmt: skip
figure.add_scatter(
    x=tastes[:, 0], y=tastes[:, 1], mode="markers", name="true tastes",
    marker={"symbol": "x", "size": 9, "color": "black"}, hoverinfo="skip",
)  # fmt: skip
figure.update_layout(
    title="Tastes and models", template="plotly_white", height=420,
    xaxis={"visible": False}, yaxis={"visible": False, "scaleanchor": "x"},
)  # fmt: skip
figure

# %% [markdown]
# ## The same without a notebook of one's own
#
# `policy.plot(user)` draws the periods and the present belief; `policy.locate(user)` has the
# numbers. The theory, with every formula, is section 10 of the theory page.

# %%
atlas.plot(watched)

# %%
atlas.locate(watched)
