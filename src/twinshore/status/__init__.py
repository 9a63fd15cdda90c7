"""How links stand, by what every other room left in the store: the mirror's last word, receipts, incidents, proofs.

Nouns: view (a link as it stands now, with its sentences), lag (by ends of the source that somebody saw, with their
age). A store and settings enter, views leave; a source is asked for its ends only where no mirror looks at it any more.
It does not know who asks, or how a view is shown.
"""

from twinshore.status.links import LinkView, as_values, look

__all__ = ["LinkView", "as_values", "look"]
