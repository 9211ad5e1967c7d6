import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    namespace = {}
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(block, namespace)  # one after another, as a reader would type them
    assert namespace["y"].shape == (100, 32)


def test_the_tables_are_made_from_results():
    subprocess.run([sys.executable, "benchmarks/readme.py", "--check"], cwd=ROOT, check=True, env=os.environ)
