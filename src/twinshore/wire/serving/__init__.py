"""The broker's side: requests read and answers written, of Produce and Fetch in every version that clients from 2.1 on
send. Answers are read and requests written in those versions as well, for who stands between a client and a broker.

Records are views of the frame they came in, and are sent as they are; neither is copied. Tags that are not known here
are left out, and so are topics without partitions.
"""
