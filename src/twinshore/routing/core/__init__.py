"""Home records and their subscribers: which record is current, and what a client does about it. No IO."""
