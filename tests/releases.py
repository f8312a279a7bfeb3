"""A program for tests: makes one small fit, then releases it in forked processes.

    python -m tests.releases create URL COUNT
        COUNT processes create the ledger at once, with an account each
    python -m tests.releases serve
        what each line of standard input asks for, with tabs between its words:
            release URL FOLDER NUMBER POINT: one process, and where to break it, or "-"
            race URL FOLDER COUNT: COUNT processes release at once

A line is printed for each process: its id (release), then its number and outcome.
"""

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
from pathlib import Path

import dpbayes as dpb
from dpbayes.core.errors import BudgetError, DpbayesError
from dpbayes.engines.diagnostics import load_checks
from dpbayes.publication import gate
from dpbayes.publication.ledger import Ledger
from dpbayes.publication.output import Work
from dpbayes.records.overlap import Identity
from dpbayes.synthesis.fit import Fit
from tests.conftest import make_records

EPSILON = 0.1
SCHEMA = dpb.Schema.from_dict(
    {
        "columns": {
            "y": {"type": "continuous", "lower": 0, "upper": 10},
            "sex": {"type": "categorical", "levels": ["f", "m"], "public": True},
        }
    }
)
RELEASED, REFUSED, FAILED = 0, 3, 4


def synthesizer(mechanism=None):
    """Of 60 records, by default anchored."""
    return dpb.Synthesizer(
        SCHEMA,
        mechanism or dpb.Anchored(EPSILON, adjacency="add-remove"),
        dpb.Regression("y ~ sex", "beta"),
        settings=dpb.SamplerSettings(warmup=200, draws=100),
    )


def records():
    """What is confidential."""
    return make_records(60)[["y", "sex"]]


def identity(given=None):
    """What a ledger knows the records by, or others."""
    given = records() if given is None else given
    return Identity(given, SCHEMA.validate(given))


def make_fit(mechanism=None):
    """A small fit, with everything in memory that a release needs."""
    fit = synthesizer(mechanism).fit(records(), allow_nonconvergence=True)
    load_checks()
    fit.findings()  # made now, and not by every process
    return fit


@contextlib.contextmanager
def small_files():
    """Files cannot grow beyond 100 bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


def quiet(text):
    """Print nothing: what a child process prints is read by its parent."""


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def break_at(point):
    """Make the release fail at a point ``kill:NAME``, ``kill-after:NAME`` or ``full:NAME``."""
    kind, name = point.split(":")
    owner = next(o for o in (Ledger, gate, Work, Path, Fit) if hasattr(o, name))
    original = getattr(owner, name)

    def broken(*args, **kwargs):
        if kind == "full":
            with small_files():
                return original(*args, **kwargs)
        if kind == "kill-after":
            original(*args, **kwargs)
        return kill()

    setattr(owner, name, broken)


def release(fit, ledger, folder, number, point="-"):
    """In a child process; ends it with a code. Only a point of the report has one made."""
    code = FAILED
    if "report" not in point:
        gate._reported = lambda *_: None
    try:
        if point != "-":
            break_at(point)
        gate.publish(fit, folder / str(number), ledger=ledger, dataset="cps", say=quiet)
        code = RELEASED
    except BudgetError:
        code = REFUSED
    except DpbayesError as error:
        print(f"{number} error {error}", flush=True)
    finally:
        os._exit(code)


def create(url, number):
    """In a child process; ends it with a code."""
    code = FAILED
    try:
        Ledger.create(url).add_dataset(f"data {number}", 1.0)
        code = 0
    except DpbayesError as error:
        print(f"{number} error {error}", flush=True)
    finally:
        os._exit(code)


def at_once(count, work):
    """Run ``work(number)`` in as many processes, and print how each ended."""
    waiting, opened = os.pipe()
    children = {}
    for number in range(count):
        child = os.fork()
        if not child:
            os.close(opened)
            os.read(waiting, 1)  # all start when the parent closes its end
            work(number)
        children[child] = number
    os.close(opened)
    for _ in children:
        child, status = os.wait()
        print(children[child], os.waitstatus_to_exitcode(status), flush=True)


def serve():
    """Release as the lines of standard input say: all of one fit, which takes seconds."""
    fit, ledgers = make_fit(), {}
    gc.freeze()  # children that look for garbage would copy all memory
    print("ready", flush=True)
    for line in sys.stdin:
        what, url, folder, *more = line.rstrip("\n").split("\t")
        if url not in ledgers:
            ledgers[url] = Ledger(url)
        ledger = ledgers[url]
        if what == "race":
            at_once(int(more[0]), lambda n, to=(ledger, Path(folder)): release(fit, *to, n))
            continue
        number, point = more
        child = os.fork()
        if not child:
            release(fit, ledger, Path(folder), number, point)
        print("process", child, flush=True)
        _, status = os.waitpid(child, 0)
        print(number, os.waitstatus_to_exitcode(status), flush=True)


def main():
    """See the module."""
    if sys.argv[1] == "serve":
        serve()
        return
    for slow in ("psycopg", "sqlalchemy.dialects.postgresql"):
        importlib.import_module(slow)  # now, and not by every process
    at_once(int(sys.argv[3]), lambda number: create(sys.argv[2], number))


if __name__ == "__main__":
    main()
