"""examples/python run as their pages say."""
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/python"


def run(name, *arguments):
    result = subprocess.run([sys.executable, "-W", "ignore", str(EXAMPLES / name), *arguments], capture_output=True, text=True,
                            timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_classify():
    shown = run("classify.py", "--seconds", "0.3")
    assert "agree with LibTorch" in shown and "times as fast" in shown and "refused: nothing" in shown


@pytest.mark.parametrize("arguments", [(), ("--step",), ("--plain",)])
def test_train(arguments):
    shown = run("train.py", *arguments)
    assert float(shown.split("accuracy ")[1].split(",")[0]) > 0.9


def test_streams():
    assert "20 streams, 20 different states; the original's sum is 0.0" in run("streams.py")


def test_all_are_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"classify.py", "train.py", "streams.py"}
