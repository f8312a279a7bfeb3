"""Files of a release tell nothing but their rows."""

import datetime

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.records.formats.catalog import WRITTEN, writer

LEVELS = {"type": "categorical", "levels": ["x", "y"]}
SCHEMA = dpb.Schema.from_dict({"columns": {"a": {"type": "count", "upper": 9}, "b": LEVELS}})


@pytest.mark.parametrize("name", WRITTEN)
def test_the_day_on_which_a_file_is_written_is_not_in_it(name):
    rows = SCHEMA.validate(pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"]}))
    content = writer(name).write(rows, SCHEMA).lower()
    for days in (-1, 0, 1):  # midnight may pass, in another time zone
        day = datetime.datetime.now() + datetime.timedelta(days)
        for form in ("%d %b %y", "%d %b %Y", "%d%b%y", "%Y-%m-%d", "%y%m%d"):
            assert day.strftime(form).lower().encode() not in content
