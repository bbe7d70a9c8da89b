"""What is shown in the lab, one file per group. Each has `run(lab)`; lab.py knows their order."""
