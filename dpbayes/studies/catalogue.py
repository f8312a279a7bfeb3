"""The studies of ``dpbayes study``, by name."""

from dpbayes.studies import (
    allocation,
    anchored,
    censoring,
    charest,
    comparison,
    earnings,
    fertility,
    known_draws,
    modips_rules,
    sdr,
)
from dpbayes.studies.runner import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        censoring.STUDY, sdr.STUDY, anchored.STUDY, earnings.STUDY, comparison.STUDY_1,
        comparison.STUDY_2, fertility.STUDY, allocation.STUDY, modips_rules.STUDY,
        known_draws.STUDY, charest.STUDY,
    )
}  # fmt: skip
