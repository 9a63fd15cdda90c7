"""What is remembered, in SQL: a module for each subject, and the schema in one place.

Each method that reads or writes is one transaction; values enter and leave. SQLite, PostgreSQL, MySQL and MariaDB
behave alike. A position never moves back, progress never has a gap, and every table but the incident log is bounded.
The caller passes the time: this package reads no wall clock and knows no Kafka.
"""
