"""Are both sides the same, and through which offset: by records, not by trust in what carried them.

Nouns: way (how the two sides are laid beside each other), chunk (a stretch of one side's log, its records as rows),
comparison, difference (the first offset where the sides part, and how), digest, proof (what is kept: identical through
this offset, as of then). Batches of both sides enter as fetched, proofs and differences leave. The core is pure; what
reads logs, runs on Spark and writes to the store stands around it. It does not know who mirrors, and trusts nobody's
receipts.

What operators may ask of proofs, as functions: a module for each, in the shape of `config.model`.

A proof runs for a while: whoever asks hands in what runs bundles (`job`), and hears reports and troubles as they come.
"""
