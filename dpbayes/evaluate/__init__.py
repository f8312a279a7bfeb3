"""Utility, disclosure risk and audits of the privacy claim. All results are confidential."""
