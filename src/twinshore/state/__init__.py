"""What is remembered, in SQL, by subject: `state.leases`, `links`, `twins`, `homes`, `switching`, `switches`,
`crossings`, `guards`, `receipts`, `extents`, `ledger`, `audit`, `memories`, `controls`, `proofs`, `key_looks`, `delay`,
`proxies`, `proxy_resets`, `traffic`. Each is a `Part`, each method that reads or writes one transaction.

Values enter and leave (`values`); SQLite, PostgreSQL, MySQL and MariaDB answer alike. A position never moves back, a
receipt never leaves a gap, and nothing grows without bound but the ledger. Nothing here knows Kafka or a wall clock:
whoever calls says what time it is.
"""
