"""The platform: a catalogue of all verbs as an API and as pages, jobs that run them, and who may do what.

Web processes read the store alone; workers have the settings and run the jobs.
"""
