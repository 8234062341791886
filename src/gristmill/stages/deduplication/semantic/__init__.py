"""Documents that mean the same, found by their embeddings."""

from typing import TYPE_CHECKING

from gristmill.lazy import names_in

if TYPE_CHECKING:
    from gristmill.stages.deduplication.semantic.cluster import AssignClustersStage as AssignClustersStage
    from gristmill.stages.deduplication.semantic.cluster import KMeansStage as KMeansStage
    from gristmill.stages.deduplication.semantic.cluster import SortByClusterStage as SortByClusterStage
    from gristmill.stages.deduplication.semantic.embedded import RestoreDocumentIds as RestoreDocumentIds
    from gristmill.stages.deduplication.semantic.embedded import SelectForDeduplication as SelectForDeduplication
    from gristmill.stages.deduplication.semantic.embeddings import StoreEmbeddingsStage as StoreEmbeddingsStage
    from gristmill.stages.deduplication.semantic.identify import IdentifyDuplicatesStage as IdentifyDuplicatesStage
    from gristmill.stages.deduplication.semantic.pairwise_stage import PairwiseStage as PairwiseStage
    from gristmill.stages.deduplication.semantic.removal import RemoveSemanticDuplicates as RemoveSemanticDuplicates
    from gristmill.stages.deduplication.semantic.stage import SemanticDeduplication as SemanticDeduplication

_FILES = {
    "AssignClustersStage": "cluster",
    "IdentifyDuplicatesStage": "identify",
    "KMeansStage": "cluster",
    "PairwiseStage": "pairwise_stage",
    "RemoveSemanticDuplicates": "removal",
    "RestoreDocumentIds": "embedded",
    "SelectForDeduplication": "embedded",
    "SemanticDeduplication": "stage",
    "SortByClusterStage": "cluster",
    "StoreEmbeddingsStage": "embeddings",
}
MODULES = {name: f"{__name__}.{file}" for name, file in _FILES.items()}
"""The module of each class. Few pipelines have embeddings: the others start without these modules."""
__getattr__ = names_in(MODULES)

__all__ = [*MODULES]
