"""Generate the bundled commute data: 25,000 synthetic people of a harbour city.

Districts differ in how far they lie from the centre; the mode of travel depends on the district and
on whether a person owns a car, and the minutes on both. The seed is fixed, so the file is always the
same. Run: python tools/make_commute.py
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np

PEOPLE = 25_000
TARGET = Path(__file__).parents[1] / "src" / "shuffledp" / "datasets" / "commute.csv.gz"

# district: share of people, kilometres to the centre, share of car owners
DISTRICTS = {
    "Old Town": (0.14, 1.0, 0.25),
    "Harbour": (0.17, 2.5, 0.38),
    "Mill Quarter": (0.19, 4.0, 0.46),
    "North Hill": (0.21, 7.0, 0.62),
    "Lakeside": (0.16, 11.0, 0.74),
    "Outer Villages": (0.13, 19.0, 0.88),
}
# mode: appeal, cost per kilometre, appeal of a car, kilometres an hour
MODES = {
    "walk": (3.1, -0.95, -0.6, 5),
    "bicycle": (2.4, -0.30, -0.5, 14),
    "e-scooter": (-0.2, -0.34, -0.6, 16),
    "bus": (1.2, -0.05, -0.9, 17),
    "tram": (1.5, -0.11, -0.8, 19),
    "train": (-1.2, 0.11, -0.7, 42),
    "car": (0.1, 0.05, 2.0, 30),
    "shared car": (-1.1, 0.02, -0.4, 30),
    "motorcycle": (-2.5, 0.03, 0.1, 34),
    "ferry": (-5.2, 0.02, -0.2, 15),
    "worked from home": (1.3, 0.02, 0.1, 0),
}


def main() -> None:
    """Write the file."""
    rng = np.random.default_rng(20_200_601)
    names = list(DISTRICTS)
    shares = np.array([DISTRICTS[name][0] for name in names])
    districts = rng.choice(len(names), size=PEOPLE, p=shares / shares.sum())
    modes = list(MODES)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["person", "district", "mode", "owns_car", "minutes"])
    for person, place in enumerate(districts, start=1):
        _, distance, owners = DISTRICTS[names[place]]
        own_distance = distance * rng.lognormal(0, 0.35)
        owns_car = rng.random() < owners
        appeal = np.array([base + cost * own_distance + car * owns_car for base, cost, car, _ in MODES.values()])
        if names[place] == "Harbour":
            appeal[modes.index("ferry")] += 2.2
        weights = np.exp(appeal - appeal.max())
        mode = modes[rng.choice(len(modes), p=weights / weights.sum())]
        speed = MODES[mode][3]
        minutes = round(4 + 60 * own_distance / speed * rng.lognormal(0, 0.15)) if speed else 0
        writer.writerow([person, names[place], mode, "yes" if owns_car else "no", minutes])
    with TARGET.open("wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        packed.write(text.getvalue().encode())


if __name__ == "__main__":
    main()
