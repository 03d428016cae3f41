"""Mutated valid objects for every parser, which must return a value or raise our error.

python -m fuzz --seconds 600                        all targets, in time slices
python -m fuzz --target decode:MSG --seed 7         one target, reproducibly
python -m fuzz --target decode:MSG --replay 8a01    one input, as a finding prints it
"""
