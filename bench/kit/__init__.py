"""What measuring and showing share: claims and their verdicts, pages, the machine and what runs on it."""
