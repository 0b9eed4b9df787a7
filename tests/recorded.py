"""Processes with rings of their own making: tests/targets/recorded.py."""
import json
import shutil

import pytest

import ring_file
from mount import build
from sql import RECORDED, columns

LAYOUTS = json.dumps({table: ["".join(kind[0] for _, kind in columns(table, added=False)),
                              ring_file._hash(columns(table, added=False))]
                      for table in sorted(RECORDED)})


@pytest.fixture
def recorded(any_python):
    def start(**options):
        library = any_python.directory / "probing-imposter.so"
        if not library.exists():
            shutil.copy(build() / "tests" / "targets" / library.name, library)
        return any_python.run("recorded.py", LAYOUTS, **options)
    return start


def do(target, line):
    target.send(line)
    target.expect("done")


def write_spans(target, count):
    do(target, f"ring = open_ring('spans'); [span(ring, i + 1) for i in range({count})]")


def write(target, table, rows):
    """Fills a new ring: values of each column, in their order. A byte that is no UTF-8 is a surrogate."""
    do(target, f"{table} = open_ring({table!r}); [{table}.write(*row) for row in {rows!a}]")
