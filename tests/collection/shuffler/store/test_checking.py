"""Whether a store could be opened is told before, without changing anything; and no error shows a password."""

import socket

import psycopg
import pytest

from shuffledp.cli import main
from shuffledp.collection.shuffler.store import StoreError, check_store, open_store
from shuffledp.collection.wire.keys import SigningKey

USER, PASSWORD = "guarded", "the-right-secret"


@pytest.fixture
def guarded(postgres_location):
    """The address of an empty database for a user with a password, which is to be filled in; and the owner's."""
    with psycopg.connect(postgres_location, autocommit=True) as connection:
        connection.execute(f"DROP ROLE IF EXISTS {USER}")
        connection.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
        connection.execute("DROP SCHEMA IF EXISTS shuffledp CASCADE")
        name = connection.info.dbname
        connection.execute(f"GRANT CREATE ON DATABASE {name} TO {USER}")
    yield postgres_location.replace("shuffledp@", f"{USER}:{{}}@"), postgres_location
    with psycopg.connect(postgres_location, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {USER} CASCADE")
        connection.execute(f"DROP ROLE {USER}")


def run(address, sql):
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(sql)


def tables(address):
    with psycopg.connect(address) as connection:
        query = "SELECT nspname FROM pg_namespace WHERE nspname = 'shuffledp' UNION SELECT relname FROM pg_class"
        return connection.execute(query + " ORDER BY 1").fetchall()


def test_nothing_is_made(guarded):
    address, owner = guarded
    before = tables(owner)
    check_store(address.format(PASSWORD))
    assert tables(owner) == before
    open_store(address.format(PASSWORD)).close()
    check_store(address.format(PASSWORD))


@pytest.mark.parametrize("attempt", [check_store, open_store], ids=["check", "start"])
def test_a_wrong_password_reads_as_such(guarded, attempt):
    address, _ = guarded
    with pytest.raises(StoreError, match="refused the user or the password") as caught:
        attempt(address.format("the-wrong-secret"))
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError, match="refused the user or the password"):
        attempt(address.replace(":{}", ""))
    with pytest.raises(StoreError, match="refused the user or the password"):
        attempt(address.replace(f"{USER}:{{}}", "nobody-at-all"))


@pytest.mark.parametrize("attempt", [check_store, open_store], ids=["check", "start"])
def test_what_cannot_be_reached(postgres_server, attempt):
    with pytest.raises(StoreError, match="database does not exist"):
        attempt(postgres_server.format("no_such_one"))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(StoreError, match="nothing answers at its address") as caught:
            attempt(f"postgresql://me:secret@127.0.0.1:{port}/x")
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError) as caught:
        attempt("postgresql://me:secret@127.0.0.1:99999/x")
    assert "secret" not in str(caught.value)


def test_rights(guarded):
    address, owner = guarded
    name = psycopg.conninfo.conninfo_to_dict(owner)["dbname"]
    run(owner, f"REVOKE CREATE ON DATABASE {name} FROM {USER}")
    with pytest.raises(StoreError, match="may not create the schema shuffledp"):
        check_store(address.format(PASSWORD))
    run(owner, "CREATE SCHEMA shuffledp")
    with pytest.raises(StoreError, match="may not create tables in the schema"):
        check_store(address.format(PASSWORD))
    run(owner, f"ALTER SCHEMA shuffledp OWNER TO {USER}")
    check_store(address.format(PASSWORD))
    open_store(address.format(PASSWORD)).close()


def test_a_newer_database(postgres_location):
    open_store(postgres_location).close()
    check_store(postgres_location)
    run(postgres_location, "UPDATE shuffledp.layout SET version = 99")
    with pytest.raises(StoreError, match=r"version 99 .* up to 2"):
        check_store(postgres_location)


def test_the_command_says_it_in_one_line(guarded, tmp_path, capsys, monkeypatch):
    """``serve shuffler --check`` and the start."""
    monkeypatch.chdir(tmp_path)
    for name in ("tasks", "work"):
        (tmp_path / name).mkdir()
    SigningKey.create().save("shuffler.key")
    SigningKey.create().public.save("author.pub")
    (tmp_path / "dsn").touch(0o600)
    (tmp_path / "shuffler.toml").write_text(
        '[shuffler]\ntasks = "tasks"\nauthors = ["author.pub"]\nsigning_key = "shuffler.key"\nport = 0\n'
        'analyzer = "https://analyzer.example"\nwork = "work"\nstore = "postgres"\nstore_dsn_file = "dsn"\n'
    )
    command = ["serve", "shuffler", "--config", "shuffler.toml"]
    (tmp_path / "dsn").write_text(guarded[0].format("the-wrong-secret"))
    assert main._run([*command, "--check"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "error: The PostgreSQL server cannot be used: it refused the user or the password.\n"
    (tmp_path / "dsn").write_text(guarded[0].format(PASSWORD))
    assert main._run([*command, "--check"]) == 0
    assert "is configured correctly" in capsys.readouterr().out
