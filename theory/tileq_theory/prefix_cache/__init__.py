"""Prefix caching: hits of a trace or of conversations, and the demand that they leave to the capacity program."""

from tileq_theory.prefix_cache.cached import CachedLengths, share_cached
from tileq_theory.prefix_cache.che import Che, che, king
from tileq_theory.prefix_cache.conversations import ConversationHits, Conversations
from tileq_theory.prefix_cache.reuse import Reuse
from tileq_theory.prefix_cache.reuse_split import SplitReuse
from tileq_theory.prefix_cache.split import SplitConversations, at_node

__all__ = [
    "CachedLengths",
    "Che",
    "ConversationHits",
    "Conversations",
    "Reuse",
    "SplitConversations",
    "SplitReuse",
    "at_node",
    "che",
    "king",
    "share_cached",
]
