"""Parts of a table that a Dask cluster counts."""

import pandas as pd
import pytest

import dpbayes as dpb
from dpbayes.core.cluster import on_cluster
from dpbayes.core.errors import DataError, EngineError

distributed = pytest.importorskip("distributed")
SCHEMA = dpb.Schema.from_dict(
    {
        "rules": ["x <= 5 or y == 1"],
        "columns": {"x": {"type": "count", "upper": 9}, "y": {"type": "binary"}},
    }
)


def test_a_cluster_counts_what_one_machine_counts(tmp_path):
    records = pd.DataFrame({"x": [i % 10 for i in range(300)], "y": 1})
    bad = records.assign(x=[*records["x"][:-1], 12])
    records.to_parquet(tmp_path / "good.parquet", row_group_size=70)
    bad.to_csv(tmp_path / "bad.csv", index=False)
    settings = dpb.SamplerSettings(seed=1)
    synthesizer = dpb.Synthesizer(SCHEMA, dpb.Marginals(2.0), settings=settings)
    here = synthesizer.fit(records).sample(1, seed=2).datasets[0]
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        on_cluster(cluster.scheduler_address) as apply,
    ):
        fit = synthesizer.fit(dpb.open_records(tmp_path / "good.parquet", SCHEMA, apply=apply))
        assert fit.task.table.sizes == (70, 70, 70, 70, 20)
        pd.testing.assert_frame_equal(fit.sample(1, seed=2).datasets[0], here)
        assert len(fit.task.table.sample(20)) == 20
        parts = dpb.open_records(tmp_path / "bad.csv", SCHEMA, chunk_rows=90, apply=apply)
        with pytest.raises(DataError, match="1 of 300 rows are outside"):
            synthesizer.fit(parts)
        (tmp_path / "good.parquet").write_bytes(b"PAR1")
        with pytest.raises(DataError, match="the records changed"):
            fit.task.table.sample(20)
        with pytest.raises(EngineError, match="could not be counted on the cluster"):
            list(fit.task.table.original.apply(int, iter(["x"]), ()))
