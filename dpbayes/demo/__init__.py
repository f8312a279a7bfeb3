"""The main job on real data that are shipped."""
