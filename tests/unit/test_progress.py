"""Bars of progress."""

import io
import time

from rich.console import Console

from dpbayes.cli import streams
from dpbayes.engines import progress


def test_a_bar_counts_steps_on_a_terminal(monkeypatch):
    shown = io.StringIO()
    screen = Console(file=shown, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: screen)
    with progress.progress_of(2, "data sets", shown=True) as done:
        done()
        done()
    assert "data sets" in shown.getvalue()
    assert "100%" in shown.getvalue()


def test_nothing_is_shown_where_it_is_not_asked_for(capfd):
    with progress.progress_of(2, "data sets", shown=False) as done:
        done()
    assert capfd.readouterr() == ("", "")


def test_a_command_shows_that_it_is_at_work_wherever_its_output_goes(monkeypatch, capfd):
    monkeypatch.setattr(streams, "EVERY", 0.2)
    with streams.sign_of_life():
        time.sleep(0.5)
    assert capfd.readouterr() == ("", "at work for 1 min\nat work for 2 min\n")
    time.sleep(0.3)
    assert capfd.readouterr() == ("", "")


def test_a_sign_of_life_says_how_much_is_done(monkeypatch, capfd):
    monkeypatch.setattr(streams, "EVERY", 0.2)
    with streams.sign_of_life(), progress.progress_of(3, "data sets", shown=False) as done:
        done()
        time.sleep(0.3)
    assert capfd.readouterr().err == "at work for 1 min; data sets: 1 of 3 done\n"
    assert not progress.under_way()


def test_threads_may_run_loops_of_one_name():
    with progress.progress_of(3, "data sets", shown=False) as done:
        with progress.progress_of(2, "data sets", shown=False) as other:
            other()
            assert progress.under_way() == "; data sets: 0 of 3 done; data sets: 1 of 2 done"
        done()
        assert progress.under_way() == "; data sets: 1 of 3 done"
    assert not progress.under_way()
