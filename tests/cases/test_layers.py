"""tests/layers: an include that goes up is found."""
import shutil
import subprocess

import pytest

from mount import REPOSITORY


def judged(top):
    result = subprocess.run([REPOSITORY / "tests" / "layers", top], capture_output=True, text=True)
    return result.returncode, result.stdout.splitlines()


@pytest.mark.parametrize("path, included, words", [
    ("agent/monitor/hear.h", "agent/breakpoint/hit.h", "agent/breakpoint/hit.h stands above"),
    ("agent/eval/eval.c", "fs/base/text.h", "agent/ knows nothing of fs/base/text.h"),
    ("fs/base/text.c", "agent/stop/hold.h", "fs/ knows nothing of agent/stop/hold.h"),
    ("fs/proc/lwp.c", "fs/tree/layout.h", "fs/tree/layout.h stands above"),
    ("fs/sampler/bpf/program.c", "fs/sampler/sampler.h", "fs/sampler/sampler.h stands above"),
])
def test_include_that_goes_up(tmp_path, path, included, words):
    for file in {path, included}:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, tmp_path / file)
    assert judged(tmp_path) == (0, ["2 files, 0 includes go up"])
    with (tmp_path / path).open("a") as turned:
        turned.write(f'#include "{included}"\n')
    line = len((tmp_path / path).read_text().splitlines())
    assert judged(tmp_path) == (1, [f"{path}:{line}: {words}", "2 files, 1 includes go up"])


def test_folder_in_no_list(tmp_path):
    (tmp_path / "fs" / "elsewhere").mkdir(parents=True)
    (tmp_path / "fs" / "elsewhere" / "new.c").write_text('#include "fs/base/text.h"\n')
    assert judged(tmp_path) == (1, ["fs/elsewhere/new.c:1: fs/elsewhere is in no list of tests/layers",
                                    "1 files, 1 includes go up"])
