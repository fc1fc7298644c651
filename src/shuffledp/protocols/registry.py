"""All protocols by question and name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from shuffledp.errors import ParameterError, UnknownNameError

if TYPE_CHECKING:
    from shuffledp.protocols.protocol import Protocol


class _QuestionProtocols(Mapping[str, "type[Protocol]"]):
    """Protocols of one question by name, each loaded from its file on first use."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = paths
        self._added: dict[str, type[Protocol]] = {}

    def __getitem__(self, name: str) -> type[Protocol]:
        if name in self._added:
            return self._added[name]
        module, _, kind = self._paths[name].rpartition(".")
        protocol: type[Protocol] = getattr(import_module(f"shuffledp.protocols.{module}"), kind)
        return protocol

    def __iter__(self) -> Iterator[str]:
        return iter([*self._paths, *self._added])

    def __len__(self) -> int:
        return len(self._paths) + len(self._added)

    def add(self, kind: type[Protocol]) -> None:
        """Add a protocol of another package; ParameterError if the name is taken."""
        if kind.name in self:
            raise ParameterError(f"There is a protocol {kind.question}/{kind.name} already.", protocol=kind.name)
        self._added[kind.name] = kind

    def classes(self) -> dict[str, str]:
        """The name of each protocol by the name of its class; loads none."""
        added = {kind.__name__: name for name, kind in self._added.items()}
        return {path.rpartition(".")[2]: name for name, path in self._paths.items()} | added


PROTOCOLS: Mapping[str, _QuestionProtocols] = {
    "count": _QuestionProtocols(
        {
            "balcer-cheu": "count.balcer_cheu.BalcerCheuCount",
            "cheu": "count.cheu.CheuCount",
            "correlated-noise": "count.correlated_noise.CorrelatedNoiseCount",
            "pure-sum": "count.pure_sum.PureSumCount",
            "shuffler-laplace": "count.shuffler_laplace.ShufflerLaplaceCount",
            "randomized-response": "count.randomized_response.RandomizedResponse",
            "discrete-laplace": "count.discrete_laplace.DiscreteLaplaceCount",
        }
    ),
    "histogram": _QuestionProtocols(
        {
            "balcer-cheu": "histogram.balcer_cheu.BalcerCheuHistogram",
            "cheu": "histogram.cheu.CheuHistogram",
            "count-min": "histogram.count_min.CountMinHistogram",
            "hadamard-blanket": "histogram.hadamard_blanket.HadamardBlanketHistogram",
            "shuffled-k-rr": "histogram.shuffled_k_rr.ShuffledKRandomizedResponse",
            "solh": "histogram.solh.ShuffledLocalHashing",
            "uniform-blanket": "histogram.uniform_blanket.UniformBlanketHistogram",
            "hashed-blanket": "histogram.hashed_blanket.HashedBlanketHistogram",
            "fake-users": "histogram.fake_users.FakeUsersHistogram",
            "correlated-noise": "histogram.correlated_noise.CorrelatedNoiseHistogram",
            "sample-and-threshold": "histogram.sample_and_threshold.SampleAndThresholdHistogram",
            "shuffler-laplace": "histogram.shuffler_laplace.ShufflerLaplaceHistogram",
            "shuffler-geometric": "histogram.shuffler_geometric.ShufflerGeometricHistogram",
            "k-rr": "histogram.k_rr.KRandomizedResponse",
            "unary": "histogram.unary.UnaryEncoding",
            "local-hashing": "histogram.local_hashing.LocalHashing",
            "hadamard-response": "histogram.hadamard_response.HadamardResponse",
            "bassily-smith": "histogram.bassily_smith.BassilySmith",
            "discrete-laplace": "histogram.discrete_laplace.DiscreteLaplaceHistogram",
            "stability": "histogram.stability.StabilityHistogram",
        }
    ),
    "sum": _QuestionProtocols(
        {
            "cheu": "sum.cheu.CheuSum",
            "privacy-blanket": "sum.privacy_blanket.PrivacyBlanketSum",
            "split-and-mix": "sum.split_and_mix.SplitAndMixSum",
            "almost-central": "sum.almost_central.AlmostCentralSum",
            "duchi": "sum.duchi.DuchiSum",
            "piecewise": "sum.piecewise.PiecewiseSum",
            "local-laplace": "sum.local_laplace.LocalLaplaceSum",
            "discrete-laplace": "sum.discrete_laplace.DiscreteLaplaceSum",
            "laplace": "sum.laplace.LaplaceSum",
        }
    ),
    "quantiles": _QuestionProtocols(
        {
            "uniform-blanket": "quantiles.uniform_blanket.UniformBlanketQuantiles",
            "correlated-noise": "quantiles.correlated_noise.CorrelatedNoiseQuantiles",
            "discrete-laplace": "quantiles.discrete_laplace.DiscreteLaplaceQuantiles",
        }
    ),
    "strings": _QuestionProtocols(
        {
            "tree-blanket": "strings.tree_blanket.TreeBlanketStrings",
            "sample-and-threshold": "strings.sample_and_threshold.SampleAndThresholdStrings",
            "stability": "strings.stability.StabilityStrings",
        }
    ),
}
"""By question and name; a new protocol is one line here."""


def register(kind: type[Protocol]) -> None:
    """Register a protocol of another package for plans, documents, tasks and the command line.

    Call it in every process that takes part: tasks contain the name of the protocol, and each party looks it up.
    """
    if kind.question not in PROTOCOLS:
        raise UnknownNameError(
            f"There is no question {kind.question!r}; choose one of {', '.join(PROTOCOLS)}.", question=kind.question
        )
    PROTOCOLS[kind.question].add(kind)


def find(question: str, name: str) -> type[Protocol]:
    """The class of the protocol with this name for this question.

    >>> sdp.find("histogram", "uniform-blanket").name
    'uniform-blanket'
    """
    name = str(name).removeprefix(f"{question}/")
    named = PROTOCOLS.get(question)
    if named is None:
        raise UnknownNameError(f"There is no question {question!r}; choose one of {', '.join(PROTOCOLS)}.")
    if name not in named:
        raise UnknownNameError(
            f"There is no protocol {name!r} for {with_article(question)}; choose one of {', '.join(named)}.",
            question=question,
            protocol=name,
        )
    return named[name]


def with_article(question: str) -> str:
    """The name of a question in a sentence: "a count", "quantiles"."""
    return question if question.endswith("s") else f"a {question}"


def find_qualified(name: str) -> type[Protocol]:
    """The protocol named ``question/name``, or ``name`` if that is unambiguous."""
    question, slash, rest = name.partition("/")
    if slash:
        return find(question, rest)
    questions = [question for question, named in PROTOCOLS.items() if name in named]
    if set(questions) <= {"histogram", "quantiles", "strings"} and "histogram" in questions:
        questions = ["histogram"]  # after which protocols for quantiles and strings are named
    if len(questions) == 1:
        return PROTOCOLS[questions[0]][name]
    if questions:
        choices = " or ".join(f"{question}/{name}" for question in questions)
        raise UnknownNameError(f"{name} is ambiguous; use {choices}.", protocol=name)
    names = ", ".join(f"{question}/{other}" for question, named in PROTOCOLS.items() for other in named)
    raise UnknownNameError(f"There is no protocol {name!r}; choose one of {names}.", protocol=name)


def class_names() -> list[str]:
    """The names of the classes of all protocols; loads none."""
    return [name for named in PROTOCOLS.values() for name in named.classes()]


def find_class(name: str) -> type[Protocol]:
    """The protocol whose class has this name."""
    for named in PROTOCOLS.values():
        if name in named.classes():
            return named[named.classes()[name]]
    raise UnknownNameError(f"There is no protocol class {name!r}.", name=name)
