"""A configuration service: what each application's clients are told, kept in the store and served over HTTP."""
