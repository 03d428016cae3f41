"""Garbage for every parser, made from valid objects; the one claim is "a value or our error".

python -m fuzz --seconds 600                        all targets, in turn
python -m fuzz --target decode:MSG --seed 7         one of them, the same inputs every time
python -m fuzz --target decode:MSG --replay 8a01    one input, as a finding prints it
"""
