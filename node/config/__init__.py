"""The configuration from the command line, the environment and files becomes one frozen `Config`.

`load.py` is the entry; `config.py` has the records, `keys.py` every key of the files.
"""
