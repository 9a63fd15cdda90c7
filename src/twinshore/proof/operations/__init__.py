"""What operators may ask of proofs, as functions: a module for each, in the shape of `fleet.operations`.

A proof runs for a while: whoever asks hands in what runs bundles (`job`), and hears reports and troubles as they come.
"""
