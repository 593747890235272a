"""The configuration: from the command line, the environment and files to one frozen `Config`.

`load.py` is the way in; `config.py` has the records, `keys.py` every key of the files.
"""
