"""The page of probefs-web, in a browser: each view by what it shows. PROBEFS_TEST_PICTURES: a directory for pictures of
them."""
import os
import pathlib
import textwrap

import pytest

import browser as browsers
from web import Web

pytestmark = pytest.mark.deadline(300)

SOURCE = """
import time

class Cart:
    def __init__(self):
        self.items = [{"name": "pear", "price": 2}]

def price(cart, turn):
    total = turn * 2
    time.sleep(0.01)
    return total

def main():
    cart, turn = Cart(), 0
    while True:
        price(cart, turn)
        turn += 1

print("ready", flush=True)
main()
"""


@pytest.fixture
def page(probe):
    if not browsers.PROGRAM:
        pytest.skip("the page: no chromium is installed")
    with Web(probe.path) as web:
        shown = browsers.Browser()
        try:
            shown.link = web.link
            shown.screen(1300, 850)
            shown.open(web.link)
            shown.shows("Choose a process")
            yield shown
            assert shown.errors == []
        finally:
            shown.close()


@pytest.fixture
def target(any_python):
    return any_python.run_source(textwrap.dedent(SOURCE), name="shop.py")


def go(page, target, view):
    page.run(f"location.hash = '#/{target.pid}/{view}'")


def keep(page, name):
    if directory := os.environ.get("PROBEFS_TEST_PICTURES"):
        page.picture(pathlib.Path(directory) / f"{name}.png")


def test_looking(page, target):
    assert page.run("location.href").endswith("/#/")  # the token is not in the address
    page.shows("shop.py", "#processes")
    page.click("shop.py", "#processes a")
    page.shows("GilHolder")
    page.until("document.querySelectorAll('.uplot canvas').length == 2", "two plots")
    keep(page, "now")

    go(page, target, "stacks")
    page.shows("price")
    page.click("main", "button.frame")
    page.shows("cart =")
    page.run("[...document.querySelectorAll('summary')].find(e => e.innerText.startsWith('cart')).click()")
    page.shows("items = [")
    page.shows("price(cart, turn)", ".source .here")
    keep(page, "stacks")

    go(page, target, "flame")
    page.until("[...document.querySelectorAll('.flame button')].some(e => e.innerText.startsWith('price'))",
               "a box of price()")
    keep(page, "flame")

    go(page, target, "tables")
    page.shows(" ms")
    page.type("textarea", "SELECT 1 AS ts, 41 + 1 AS answer UNION SELECT 2, 43")
    page.run("document.querySelector('textarea').focus()")
    page.press("Enter", control=True)
    page.shows("42", "#view .table")
    page.until("!!document.querySelector('.uplot canvas')", "a plot")
    page.type("textarea", "SELECT nothing FROM process")
    page.click("Run")
    page.shows("nothing", "[role=alert]")
    keep(page, "tables")

    go(page, target, "files/threads/")
    page.click(str(target.pid), ".files nav a")
    page.click("status", ".files nav a")
    page.shows("Tid:")
    keep(page, "files")

    go(page, target, "torch")
    page.shows("Nothing of PyTorch is recorded")
    page.run("location.hash = '#/all/places'")
    page.shows("price")
    keep(page, "places")
    go(page, target, "record")
    page.shows("record gc on")
    page.shows("Agent: none")  # nothing of this put anything into it
    keep(page, "record")


def test_acting(page, target):
    go(page, target, "eval")
    page.until("!!document.querySelector('textarea')", "the box")
    page.type("textarea", "6 * 7")
    page.press("Enter", control=True)
    page.shows("42", ".log")
    page.type("textarea", "1/0")
    page.click("Run")
    page.shows("ZeroDivisionError", ".log")
    keep(page, "eval")

    go(page, target, "events")
    page.shows("Nothing has happened")
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if "time.sleep" in text)

    go(page, target, "debug")
    page.shows("main", ".debug")
    page.type("input[aria-label=Breakpoint]", f"stop shop.py:{line}")
    page.click("Add")
    page.shows("stopped by breakpoint 1", "p.held")
    page.shows("total =", ".value")
    page.until(f"document.querySelector('.source .here button')?.innerText == '● {line}'", "the line, marked")
    page.shows("stop", ".log")
    page.run("document.activeElement.blur()")
    page.press("n")
    page.shows(f"shop.py:{line + 1}", ".debug")
    page.type("input[aria-label=Expression]", "total + 0.5")
    page.run("[...document.querySelectorAll('.debug button')].filter(e => e.innerText == 'Run')[0].click()")
    page.until("/\\d+\\.5/.test(document.querySelector('.debug > div + div > pre').innerText)", "the value")
    page.click("whole file")
    page.shows("class Cart", ".source")
    keep(page, "debug")
    page.screen(390, 800, "dark")
    page.until("document.documentElement.scrollWidth <= innerWidth", "nothing broader than a phone")
    keep(page, "debug-phone")
    page.screen(1300, 850)
    page.click("remove")
    page.shows("None is set")
    page.run("document.activeElement.blur()")
    page.press("c")
    page.shows("click a line", ".debug")  # it goes on
    go(page, target, "stacks")
    page.shows("price")


def test_ended(page, any_python):
    target = any_python.run_source("import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nbasket = [1, 2]\n"
                                   "raise KeyError('gone')\n", name="ends.py")
    go(page, target, "record")
    page.click("on-crash record")
    page.shows("OnCrash: record")
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    target.process.wait()
    page.shows(f"ended: {target.pid}", "#places")
    page.click(f"ended: {target.pid}", "#places a")
    page.shows("KeyError")
    page.shows("basket")
    keep(page, "crash")
    page.screen(390, 800, "dark")
    page.run("location.hash = '#/'")
    page.until("!!document.querySelector('#places a').offsetParent", "the list at a phone's width")
    keep(page, "phone")


def test_without_a_token(page):
    page.run("localStorage.clear()")
    page.open(page.link.partition("/#")[0] + "/#/all/places")
    page.shows("Open the link that probefs-web printed")
