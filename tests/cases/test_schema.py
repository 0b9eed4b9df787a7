"""schema/generate: what it makes of a table, and what it refuses."""
import subprocess
import sys

import pytest

from mount import REPOSITORY
from sql import RECORDED, SCHEMA, columns

GOOD = """\
-- what it is
-- More of that.
-- source: test
CREATE TABLE good(
    a INTEGER, -- [s] its time
    b TEXT     -- its name: "quoted", \\ and all
);
"""


def generate(tmp_path, kind, text, name="good"):
    path = tmp_path / f"{name}.sql"
    path.write_text(text)
    return subprocess.run([sys.executable, REPOSITORY / "schema" / "generate", kind, "these", path],
                          capture_output=True, text=True)


def test_what_is_generated(tmp_path):
    header = generate(tmp_path, "header", GOOD).stdout
    assert 'X(good, "what it is", true)' in header
    assert "enum good_column {\n    GOOD_A,\n    GOOD_B,\n};" in header
    source = generate(tmp_path, "source", GOOD).stdout
    assert '{"a", COLUMN_INTEGER, "s", "its time"},' in source
    assert r'{"b", COLUMN_TEXT, NULL, "its name: \"quoted\", \\ and all"},' in source
    assert '"what it is. More of that.", "test",' in source and "&good_rows, -1}" in source


@pytest.mark.parametrize("old, new, words", [
    ("CREATE TABLE good", "CREATE TABLE bad", "expected comments, a source and"),
    ("-- source: test\n", "", "expected comments, a source and"),
    ("a INTEGER", "a BLOB", "expected `name TYPE"),
    ("-- [s] its time", "", "expected `name TYPE"),
    ("a INTEGER,", "a INTEGER", "a comma"),
    ("b TEXT", "a TEXT", "two columns"),
    (");\n", "", "`);` at the end"),
    ("    a INTEGER, -- [s] its time\n    b TEXT     -- its name: \"quoted\", \\ and all\n", "",
     "1 to 48 columns"),
])
def test_what_is_refused(tmp_path, old, new, words):
    assert old in GOOD
    done = generate(tmp_path, "header", GOOD.replace(old, new))
    assert done.returncode == 1 and words in done.stderr and "good.sql:" in done.stderr


@pytest.mark.parametrize("table", SCHEMA)
def test_sqlite_understands_it(table):
    assert columns(table)


def test_each_is_built():
    """Nothing in the directory is left out of the build."""
    listed = (REPOSITORY / "schema" / "meson.build").read_text()
    for table in SCHEMA:
        assert f"  '{table}',\n" in listed
        source = "recorded" if table in RECORDED else table
        assert (REPOSITORY / "fs" / "tables" / f"{source}.c").exists()
