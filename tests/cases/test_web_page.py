"""The page of probefs-web, in a browser: each view by what it shows. PROBEFS_TEST_PICTURES: a directory for pictures of
them."""
import os
import pathlib
import re
import signal
import textwrap

import pytest

import browser as browsers
from interpreters import eventually, patience
from test_torch import torch_python  # noqa: F401
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
            shown.link, shown.mount = web.link, probe.path
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
    """Pictures of it, where somebody wants them; nothing of it is broader than a phone."""
    for kind, size in {"": (1300, 850), "-dark": (1300, 850, "dark"), "-phone": (390, 800),
                       "-phone-dark": (390, 800, "dark")}.items():
        page.screen(*size)
        page.until("document.documentElement.scrollWidth <= innerWidth", "nothing broader than the screen")
        if directory := os.environ.get("PROBEFS_TEST_PICTURES"):
            page.picture(pathlib.Path(directory) / f"{name}{kind}.png")
    page.screen(1300, 850)


def test_looking(page, target):
    assert page.run("location.href").endswith("/#/")  # the token is not in the address
    page.shows("shop.py", "#processes")
    page.click("shop.py", "#processes a")
    page.shows("GilHolder")
    page.until("document.querySelectorAll('.uplot canvas').length == 2", "two plots")
    keep(page, "now")

    go(page, target, "stacks")
    page.shows("price")
    page.click("main", "button.frame[data-key$='/1']")  # not between two calls of price()
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
    keep(page, "torch")
    for name in "modules", "parameters", "tensors", "optimizers", "memory":
        page.click(name, "#view nav a")
        page.shows("It has no PyTorch")
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
    keep(page, "events")
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
    page.until("/\\d+\\.5/.test(document.querySelector('.debug .of-values > pre').innerText)", "the value")
    page.click("whole file")
    page.shows("class Cart", ".source")
    keep(page, "debug")
    page.click("disable")
    page.shows("disabled stop", ".of-set")
    page.click("enable")
    page.shows("armed", ".of-set")
    page.click("remove")
    page.shows("None is set")
    page.run("document.activeElement.blur()")
    page.press("c")
    page.shows("click a line", ".debug")  # it goes on
    go(page, target, "stacks")
    page.shows("price")


def test_killed_browser(page, target):
    """Its lines go, and what they hold goes on."""
    go(page, target, "debug")
    page.shows("main", ".debug")
    line = next(n for n, text in enumerate(SOURCE.splitlines(), 1) if "time.sleep" in text)
    page.until(f"[...document.querySelectorAll('.source button')].some(e => e.innerText == '{line}')", "the line")
    page.click(str(line), ".source button")
    page.shows("stopped by breakpoint 1", "p.held")
    page.shows("here stop", ".of-set")
    page.run("document.activeElement.blur()")
    page.press("n")
    page.shows("stopped by a step", "p.held")
    os.killpg(page.process.pid, signal.SIGKILL)
    directory = page.mount / str(target.pid)
    eventually(lambda: re.search(r"^Stopped: none$", (directory / "status").read_text(), re.M), what="that it runs")
    eventually(lambda: "shop.py" not in (directory / "breakpoints").read_text(), what="no line")


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
    page.shows("#0 <module> (", "summary")
    page.shows("status 1 · ", "#places")
    keep(page, "crash")
    page.screen(390, 800)
    page.run("location.hash = '#/'")
    page.until("!!document.querySelector('#places a').offsetParent", "the list at a phone's width")
    keep(page, "list")


def test_held_at_its_exception(page, any_python):
    """Python can be asked in its frames, and then it ends as it would have."""
    target = any_python.run_source("import sys\ndef buy(basket):\n    raise KeyError('gone')\nprint('ready', "
                                   "flush=True)\n"
                                   "sys.stdin.readline()\nbuy([1, 2])\n", name="ends.py")
    go(page, target, "crash")
    page.click("on-crash stop")
    page.shows("OnCrash: stop")
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    go(page, target, "debug")
    page.shows("is held at its uncaught exception")
    page.click("its crash", "#view a")
    page.shows("KeyError: 'gone'")
    page.shows("buy (", "summary")
    page.shows("raise KeyError", "#view .here")
    page.type("input[aria-label='Expression in frame 0']", "sum(basket)")
    page.click("Run")
    page.shows("3", "#view .inside > pre")
    keep(page, "held-crash")
    page.click("continue")
    assert target.process.wait(patience(30)) == 1


def test_job(page, any_python):
    ranks = [any_python.run("threads.py", 1, 2, env={"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                                                     "MASTER_PORT": "29517"}) for rank in (0, 2)]
    page.click("job: ", "#places a")
    page.shows("ranks 0,2 of 3, not here: 1")
    page.click("rank 2", "#view a")
    page.shows(str(ranks[1].pid), "#head")
    page.shows("rank 0", "#processes")
    page.run("history.back()")
    page.shows("2 of 2")
    keep(page, "job")
    page.click("collectives", "#tabs a")
    page.shows("No process here has a group of torch.distributed")


RANK = """
import os, sys, time, torch, torch.distributed as dist
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
    def forward(self, x):
        return self.down(self.up(x).relu())
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = Net()
adam = torch.optim.Adam(net.parameters())
net(torch.ones(2, 4)).sum().backward()
adam.step()
with torch.no_grad():
    net.up.weight[1, 2] = float("nan")
print("ready", flush=True)
if os.environ["RANK"] == "0":
    dist.all_reduce(torch.ones(3))
else:
    time.sleep(100000)
"""


@pytest.mark.long
def test_torch(page, torch_python, tmp_path):  # noqa: F811
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 1000)}
    ranks = [torch_python.run_source(RANK, name="rank.py", env={**environment, "RANK": str(rank)}, ready=False)
             for rank in (0, 1)]
    page.click("job: ", "#places a")
    page.click("collectives", "#tabs a")
    page.shows("in all_reduce")
    page.shows("rank 1")
    keep(page, "collectives")
    page.click("rank 0", "#view .place a")
    page.shows("all_reduce")
    shown = {"modules": "up Linear weight float32[8, 4]", "parameters": "down.bias", "tensors": "gradient",
             "optimizers": "Adam", "memory": "cpu"}
    for name, words in shown.items():
        go(page, ranks[0], f"torch/{name}")
        page.shows(words)
        keep(page, f"torch-{name}")
    go(page, ranks[0], "torch/parameters")
    page.click("With their values")
    page.until("[...document.querySelectorAll('tbody tr')][0]?.innerText.includes('up.weight')",
               "what has a NaN, first")


def test_without_a_token(page):
    page.run("localStorage.clear()")
    page.open(page.link.partition("/#")[0] + "/#/all/places")
    page.shows("Open the link that probefs-web printed")
