"""Settings from a file, the environment and options; what is unknown or wrong is refused by its name."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from shuffledp.collection.server.settings import ServerSettings, read_secret, read_settings
from shuffledp.errors import DataError, ParameterError


@dataclass(frozen=True, kw_only=True)
class Made(ServerSettings):
    port: int = 1
    folder: Path
    names: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    rate: float = 0.5
    wanted: bool = False
    maybe: Path | None = None


@pytest.fixture
def read(tmp_path):
    def read(text: str | None = None, environment=None, role="shuffler", **options) -> Made:
        file = None
        if text is not None:
            file = tmp_path / "settings.toml"
            file.write_text(text)
        return read_settings(Made, role=role, file=file, environment=environment or {}, options=options)

    return read


def test_every_kind(read, tmp_path):
    made = read(
        '[shuffler]\nfolder = "a"\nnames = ["x", "y"]\nfiles = ["b", "/c"]\nrate = 2\nwanted = true\n'
        'maybe = "d"\nport = 80\nhost = "::1"\n[analyzer]\nanything = 1\n'
    )
    assert made.folder == tmp_path / "a"
    assert made.files == (tmp_path / "b", Path("/c"))
    assert (made.names, made.rate, made.wanted, made.maybe) == (("x", "y"), 2.0, True, tmp_path / "d")
    assert (made.port, made.host) == (80, "::1")


def test_the_environment_and_options_go_first(read):
    environment = {
        "SHUFFLEDP_SHUFFLER_PORT": "81",
        "SHUFFLEDP_SHUFFLER_NAMES": "p, q",
        "SHUFFLEDP_SHUFFLER_WANTED": "yes",
        "SHUFFLEDP_SHUFFLER_RATE": "0.25",
        "SHUFFLEDP_ANALYZER_WHATEVER": "of another server",
        "SHUFFLEDP_TRACEBACK": "1",
    }
    made = read('[shuffler]\nfolder = "a"\nport = 80\n', environment, port=82, host=None)
    assert (made.port, made.host, made.names, made.wanted, made.rate) == (82, "127.0.0.1", ("p", "q"), True, 0.25)
    assert read('[shuffler]\nfolder = "a"\nport = 80\n', environment).port == 81
    assert read(None, {"SHUFFLEDP_SHUFFLER_FOLDER": "here"}).folder == Path("here")


@pytest.mark.parametrize(
    ("text", "environment", "named"),
    [
        ('[shuffler]\nfolder = "a"\ncolour = 1\n', {}, "'colour'"),
        ('[shuffler]\nfolder = "a"\n[shufler]\n', {}, "'shufler'"),
        ('[analyzer]\nfolder = "a"\n', {}, "no table [shuffler]"),
        ("shuffler = 3\n", {}, "no table [shuffler]"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_SHUFFLER_COLOUR": "1"}, "'colour'"),
        ("[shuffler]\n", {}, "folder"),
        (None, {}, "folder"),
        ('[shuffler]\nfolder = "a"\nport = "x"\n', {}, "port in"),
        ('[shuffler]\nfolder = "a"\nport = true\n', {}, "port in"),
        ('[shuffler]\nfolder = "a"\nport = 1.5\n', {}, "an integer"),
        ("[shuffler]\nfolder = 1\n", {}, "a path"),
        ('[shuffler]\nfolder = ""\n', {}, "a path"),
        ('[shuffler]\nfolder = "a"\nnames = "x"\n', {}, "a list"),
        ('[shuffler]\nfolder = "a"\nwanted = 1\n', {}, "true or false"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_SHUFFLER_PORT": "x"}, "SHUFFLEDP_SHUFFLER_PORT must be an integer"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_SHUFFLER_WANTED": "perhaps"}, "true or false"),
        ('[shuffler]\nfolder = "a"\nport = 70000\n', {}, "65535"),
        ('[shuffler]\nfolder = "a"\ntls_key = "k"\n', {}, "both tls_certificate and tls_key"),
        ('[shuffler]\nfolder = "a"\nlog_level = "loud"\n', {}, "log_level"),
        ('[shuffler]\nfolder = "a"\nconnections = 0\n', {}, "connections must be above 0"),
        ('[shuffler]\nfolder = "a"\nrequest_seconds = nan\n', {}, "request_seconds must be above 0"),
        ("[shuffler\n", {}, "not valid TOML"),
        (f"[shuffler]\nrequest_seconds = 1{400 * '0'}\n", {}, "an integer has 1,329 bits, more than 64"),
        (f"[shuffler]\nrequest_seconds = 1{5000 * '0'}\n", {}, "not valid TOML"),
        (f"x = {100_000 * '['}\n", {}, "nested too deeply"),
        (f"[shuffler]\n{'a.' * 2_000}a = 1\n", {}, "nested too deeply"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_SHUFLER_PORT": "1"}, "Unknown name SHUFFLEDP_SHUFLER_PORT"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_PORT": "1"}, "with SHUFFLEDP_SHUFFLER_ or SHUFFLEDP_ANALYZER_"),
        ('[shuffler]\nfolder = "a"\n', {"SHUFFLEDP_ANALYZER": "http://analyzer:8081"}, "Unknown name"),
    ],
)
def test_what_is_refused(read, text, environment, named):
    with pytest.raises(ParameterError) as caught:
        read(text, environment)
    assert named in str(caught.value)


def test_names_in_the_environment_that_are_for_others(read):
    names = (
        "NATIVE",
        "NATIVE_FLAGS",
        "REQUIRE_KERNELS",
        "TRACEBACK",
        "PUBLIC_SCRIPTS",
        "ANALYZER_PORT",
        "ANALYZER_COLOUR",
    )
    environment = {f"SHUFFLEDP_{name}": "1" for name in names} | {"SHUFFLEDPX": "1", "OTHER": "1"}
    assert read('[shuffler]\nfolder = "a"\n', environment).port == 1


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="Cannot read the settings"):
        read_settings(Made, role="shuffler", file=tmp_path / "none", environment={}, options={})


def test_secrets_are_for_their_owner_only(tmp_path):
    file = tmp_path / "dsn"
    file.write_text("postgresql://user:hidden@host/db\n")
    file.chmod(0o640)
    with pytest.raises(DataError, match="chmod 600") as caught:
        read_secret(file)
    assert "hidden" not in str(caught.value)
    file.chmod(0o600)
    assert read_secret(file) == "postgresql://user:hidden@host/db"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="is not valid UTF-8"):
        read_secret(file)
    with pytest.raises(DataError, match="Cannot read"):
        read_secret(tmp_path / "none")
