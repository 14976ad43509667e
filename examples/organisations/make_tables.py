"""Three organisations' tables from real data: `python make_tables.py bank_a` writes what bank A holds, no more.

The numbers are the breast-cancer data that scikit-learn brings along (569 tumours, 30 measurements, a diagnosis). They
stand in for customers, because no bank publishes its own: every organisation gets ten of the columns, about some of
the rows, in an order of its own, under ids that have nothing to do with the order.

    bank_a.csv   customer and the ten means                  labels.csv   customer, diagnosis (empty for 25 of them)
    bank_b.csv   customer and the ten standard errors        new.csv      those customers of labels.csv that everybody
    telco.csv    customer and the ten worst values                        has and whose diagnosis is empty

It draws from one seed, so that tables made on three machines fit together.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

COLUMNS = {"bank_a": slice(0, 10), "bank_b": slice(10, 20), "telco": slice(20, 30)}
CUSTOMERS = {"bank_a": 540, "bank_b": 500, "telco": 520}  # of 569
WITHOUT_LABEL = 25


def write(name: str, header: list[str], lines: list[list[object]]) -> None:
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *lines])
    print(f"{name}: {len(lines)} rows, {len(header)} columns")


def main(me: str) -> None:
    data, rng = load_breast_cancer(), np.random.default_rng(2024)
    ids = [f"C{number:06d}" for number in rng.choice(1_000_000, len(data.target), replace=False)]
    holds = {name: rng.permutation(len(ids))[:rows] for name, rows in CUSTOMERS.items()}
    shared = [row for row in holds["bank_a"] if all(row in rows for rows in holds.values())]
    unlabelled = set(shared[:WITHOUT_LABEL])
    names = [str(name).replace(" ", "_") for name in data.feature_names[COLUMNS[me]]]
    write(f"{me}.csv", ["customer", *names], [[ids[row], *data.data[row, COLUMNS[me]]] for row in holds[me]])
    if me == "bank_a":
        truth = {row: "" if row in unlabelled else str(data.target_names[data.target[row]]) for row in holds[me]}
        write("labels.csv", ["customer", "diagnosis"], [[ids[row], truth[row]] for row in rng.permutation(holds[me])])
        write("new.csv", ["customer"], [[ids[row]] for row in sorted(unlabelled)])


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in COLUMNS]:
        sys.exit(f"say whose table to make: python make_tables.py {' | '.join(COLUMNS)}")
    main(sys.argv[1])
