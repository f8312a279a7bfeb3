"""``dpbayes tune``: choose risk weights and an anchor on reference records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dpbayes.cli.models import ModelOptions
from dpbayes.cli.options import InputOptions, ShowValues
from dpbayes.cli.streams import say, say_done, shows_progress
from dpbayes.core.errors import OutputError
from dpbayes.engines import SamplerSettings
from dpbayes.mechanisms import Unweighted
from dpbayes.privacy.accounting import stated
from dpbayes.publication.output import as_output_error, check_writable
from dpbayes.synthesis.tuning import tune as choose


def tune(
    reference: Annotated[
        str,
        typer.Option(help="Public records, such as those of an earlier period: FILE or address."),
    ],
    target_epsilon: Annotated[
        float, typer.Option(help="Largest local ε_x = 2Δ on the reference records, in nats.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, JSON.")],
    source: InputOptions,
    model: ModelOptions,
    seed: Annotated[int | None, typer.Option(help="For tests.")] = None,
    show_values: ShowValues = False,
) -> None:
    """Choose c1 and c2 of the risk weights on reference records by bisection with refits.

    Among the weights that meet the target, those with the largest sum are taken. The file is for
    `synthesize --weights FILE`, and for --anchor FILE: it holds draws fitted to the reference
    records and no record. It takes nothing from the confidential records, so that weights made
    with it keep a strict ε; records that it was made from are refused as confidential ones.
    """
    if os.path.exists(out):
        raise OutputError(f"--out {str(out)!r} exists; name a new file.")
    check_writable(out.parent)
    settings = SamplerSettings(seed=seed, progress=shows_progress())
    synthesizer = model.synthesizer(Unweighted(), settings=settings, reference=True)
    records = source.read_reference(reference, synthesizer.schema)
    synthesizer.schema.validate(records, show_values=show_values)
    weights = choose(synthesizer, records, target_epsilon)
    with as_output_error(out, "The weights were not written."):
        out.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        weights.save(out)
    assert weights.tuning is not None
    say(
        f"c1 = {weights.c1:.4g}, c2 = {weights.c2:.4g}: local ε_x = 2Δ = "
        f"{stated(weights.tuning['local_epsilon'])} on {weights.tuning['n']:,} reference records "
        f"(target {stated(target_epsilon)})."
    )
    say_done(f"Written: {out}")
