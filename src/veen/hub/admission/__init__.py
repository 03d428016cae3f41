"""Admission: whether a message may enter the log, decided without any input or output (001 section 8).

The rows of the table stand in three modules, in their order:

    prefilter   1, 2            of the request alone
    message     3 to 9          of the message alone; may run in parallel, in other processes
    sequence    10 to 18        of the message, the log before it, and the time assigned to it

Each stage takes what the stage before it returns (``stages``), so a wrong order does not type-check.
"""
