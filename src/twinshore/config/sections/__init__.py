"""The sections of the settings file: a module for each, which declares its keys as `SECTION`.

A new section is a new module here. All sections stand here, not in the packages that use them: every process reads the
same file, and the client library has this package but not the others.
"""
