"""A wheel installed elsewhere has the command, the Stan programs and the data."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*command, **options):
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_runs_elsewhere(tmp_path):
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", wheel)
    # The dependencies are those of this environment: only the package itself is under test.
    site = next((tmp_path / "env" / "lib").glob("python3*")) / "site-packages"
    outer = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "outer.pth").write_text(outer)
    elsewhere = {"cwd": tmp_path, "env": {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}}
    where = run(python, "-c", "import dpbayes; print(dpbayes.__file__)", **elsewhere)
    assert Path(where.strip()).is_relative_to(tmp_path / "env")
    command = tmp_path / "env" / "bin" / "dpbayes"
    assert "censored-weighted" in run(command, "list", **elsewhere)
    assert "strict ε-DP" in run(command, "demo", "--quick", **elsewhere)
