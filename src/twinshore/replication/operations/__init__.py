"""What operators ask of links and mirrors: one module for each subject.

A request enters as a frozen value, beside settings and store. `plan` returns the steps and changes nothing; `act` does
them.
"""
