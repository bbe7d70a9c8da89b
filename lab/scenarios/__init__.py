"""The lab's scenarios, one file per group. Each has `run(lab)`; lab.py defines their order."""
