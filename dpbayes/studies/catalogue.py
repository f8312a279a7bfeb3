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
    location,
    modips_rules,
    sdr,
    slomag,
)
from dpbayes.studies.runner import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        censoring.STUDY, sdr.STUDY, anchored.STUDY, earnings.STUDY, comparison.STUDY_1,
        comparison.STUDY_2, location.STUDY, slomag.STUDY, fertility.STUDY, allocation.STUDY,
        modips_rules.STUDY, known_draws.STUDY, charest.STUDY,
    )
}  # fmt: skip
