"""The vendors' own agent CLIs, a small file each."""
