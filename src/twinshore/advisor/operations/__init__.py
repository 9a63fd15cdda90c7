"""What operators may ask about a cluster's reliability, as functions: a module for each, in the shape of
`config.model`.
"""
