"""Publication of releases: the job, the gate that a release passes, and the privacy ledger."""
