"""``python -m benchmarks.open_bandit FOLDER``: a policy's value from the log of another, real one.

The Open Bandit samples (Saito et al. 2021) that the PyPI wheel ``obp==0.4.1`` carries: three
campaigns of a fashion shop, 10,000 rows each, once logged by uniformly random choice and once by
Bernoulli Thompson sampling (*bts*), with true propensities. FOLDER is its ``obp/dataset/obd``;
``make open-bandit`` puts it at ``data/open-bandit/obd``.

From the random log we estimate the value of bts, and compare it with the mean click of the bts log.
The estimate uses nothing of the bts log but *which items were shown*: the policy that is evaluated
shows item a at position s as often as the bts log does. Its propensities cannot be used: bts learnt
during the week, and the log has the propensity of the shown item only. So this is the value of the
week's mean policy; it equals that of bts if clicks and the learning of bts do not move together.

Arms are the items of the campaign. Features of an arm: a number of the item, the user's affinity to
it, and the position (one-hot), which is the same for all arms of a row. There are no user ids:
every row counts as a user.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.tables import markdown
from dyclu.data import Chunk, Log
from dyclu.evaluate import Comparison, Target, compare
from dyclu.evaluate.estimators import METHODS
from dyclu.sim.reports.document import Table
from dyclu.validation import FloatArray, Ids

CAMPAIGNS = ("all", "men", "women")
POSITIONS = 3
DIM = 2 + POSITIONS
NOTE = (
    "Clicks per thousand, with 95 % intervals (bootstrap; of single rows, as there are no users). "
    "Truth: mean click of the bts log ± its standard error. In: whether the interval holds it."
)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One log of one campaign.

    Attributes
    ----------
    item, position : int arrays of shape (rows,)
        What was shown, and where.
    click, propensity : arrays of shape (rows,)
        Whether it was clicked, and the probability with which it was shown.
    affinity : array of shape (rows, items)
        Affinity of the user to all items.
    number : array of shape (items,)
        A number of each item.
    """

    item: Ids
    position: Ids
    click: FloatArray
    propensity: FloatArray
    affinity: FloatArray
    number: FloatArray

    @classmethod
    def read(cls, folder: Path, policy: str, campaign: str) -> Sample:
        """Read the log of a policy ("random" or "bts")."""
        place = folder / policy / campaign
        rows = list(_rows(place / f"{campaign}.csv"))
        number = [float(row["item_feature_0"]) for row in _rows(place / "item_context.csv")]
        return cls(
            item=np.array([int(row["item_id"]) for row in rows]),
            position=np.array([int(row["position"]) for row in rows]) - 1,
            click=np.array([float(row["click"]) for row in rows]),
            propensity=np.array([float(row["propensity_score"]) for row in rows]),
            affinity=np.array(
                [
                    [float(row[f"user-item_affinity_{i}"]) for i in range(len(number))]
                    for row in rows
                ]
            ),
            number=np.array(number),
        )

    @property
    def log(self) -> Log:
        """The same as a log."""
        rows, items = self.affinity.shape
        arms = np.zeros((rows, items, DIM))
        arms[:, :, 0] = self.number
        arms[:, :, 1] = self.affinity
        arms[np.arange(rows), :, 2 + self.position] = 1.0
        return Log.of_arrays(
            user=range(rows),
            arms=arms,
            chosen=self.item,
            reward=self.click,
            propensity=self.propensity,
        )

    @property
    def shown(self) -> FloatArray:
        """How often each item is shown at each position: an array (positions, items) of shares."""
        counts = np.zeros((POSITIONS, len(self.number)))
        np.add.at(counts, (self.position, self.item), 1.0)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    @property
    def target(self) -> Target:
        """The policy that shows each item as often as this log does."""
        shares = self.shown

        def chances(chunk: Chunk) -> FloatArray:
            return np.asarray(shares[chunk.arms[:, 0, 2:].argmax(axis=1)])

        return chances


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="") as lines:
        yield from csv.DictReader(lines)


def evaluated(folder: Path, campaign: str) -> tuple[Comparison, float, float]:
    """Return bts evaluated on the random log, and mean click and standard error of its own log."""
    random, bts = (Sample.read(folder, policy, campaign) for policy in ("random", "bts"))
    found = compare(random.log, {"bts": bts.target})
    error = float(bts.click.std(ddof=1) / np.sqrt(len(bts.click)))
    return found, float(bts.click.mean()), error


def plain(folder: Path, campaign: str) -> dict[str, float]:
    """Return IPS, SNIPS and the direct method's mean, computed row by row from the files.

    It shares no code with `dyclu.evaluate`, and is compared with it.
    """
    shown: dict[tuple[str, str], int] = {}
    places: dict[str, int] = {}
    for row in _rows(folder / "bts" / campaign / f"{campaign}.csv"):
        key = row["position"], row["item_id"]
        shown[key] = shown.get(key, 0) + 1
        places[row["position"]] = places.get(row["position"], 0) + 1
    rows, weights, clicks = 0, 0.0, 0.0
    for row in _rows(folder / "random" / campaign / f"{campaign}.csv"):
        key = row["position"], row["item_id"]
        weight = shown.get(key, 0) / places[row["position"]] / float(row["propensity_score"])
        rows, weights, clicks = rows + 1, weights + weight, clicks + weight * float(row["click"])
    return {"ips": clicks / rows, "snips": clicks / weights, "weight": weights / rows}


def table(found: Mapping[str, tuple[Comparison, float, float]]) -> Table:
    """Return the estimates of all campaigns beside the truth."""
    rows = []
    for campaign, (comparison, truth, error) in found.items():
        for method, estimate in comparison["bts"].estimates.items():
            low, high = estimate.interval.low, estimate.interval.high
            rows.append((
                campaign,
                METHODS[method],
                f"{1000 * estimate.value:.2f} ({1000 * low:.2f} to {1000 * high:.2f})",
                f"{1000 * truth:.2f} ± {1000 * error:.2f}",
                "yes" if truth in estimate.interval else "no",
            ))  # fmt: skip
    header = ("campaign", "estimator", "estimate", "truth", "in")
    return Table(header=header, rows=tuple(rows), note=NOTE, words=("estimator",))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = {campaign: evaluated(folder, campaign) for campaign in CAMPAIGNS}
    print(markdown(table(found)))
    for campaign, (comparison, _, _) in found.items():
        overlap = comparison["bts"].overlap
        print(
            f"\n{campaign}: {comparison['bts'].verdict} Effective sample size "
            f"{overlap.effective:.0f}, largest weight {overlap.largest:.1f}."
        )


if __name__ == "__main__":
    main()
