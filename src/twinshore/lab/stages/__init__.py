"""What tests, benches and shows set up on lab clusters: mirrors and monitors as processes, other copiers, faults,
topics of every kind and their load. It knows neither who looks on nor what is to be shown.
"""
