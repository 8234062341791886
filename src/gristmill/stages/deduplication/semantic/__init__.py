"""Documents that mean the same, found by their embeddings."""

from gristmill.stages.deduplication.semantic.cluster import AssignClustersStage, KMeansStage, SortByClusterStage
from gristmill.stages.deduplication.semantic.embeddings import StoreEmbeddingsStage
from gristmill.stages.deduplication.semantic.identify import IdentifyDuplicatesStage
from gristmill.stages.deduplication.semantic.pairwise_stage import PairwiseStage
from gristmill.stages.deduplication.semantic.removal import RemoveSemanticDuplicates

__all__ = [
    "AssignClustersStage",
    "IdentifyDuplicatesStage",
    "KMeansStage",
    "PairwiseStage",
    "RemoveSemanticDuplicates",
    "SortByClusterStage",
    "StoreEmbeddingsStage",
]
