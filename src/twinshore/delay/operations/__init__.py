"""What operators may ask about delays, as functions: a module for each, in the shape of `fleet.operations`.

They ask the store alone, by what a monitor saw last.
"""
