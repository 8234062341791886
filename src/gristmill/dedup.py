"""Deduplication and decontamination: stages for pipelines, and workflows that run alone.

```python
from gristmill.dedup import ExactDeduplication, FuzzyDeduplicationWorkflow
```
"""

from gristmill.stages.decontamination import FuzzyDecontamination, NgramDecontamination
from gristmill.stages.deduplication.exact import ExactDeduplication, LineDeduplication, ParagraphDeduplication
from gristmill.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from gristmill.stages.deduplication.fuzzy import FuzzyDeduplication
from gristmill.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow
from gristmill.stages.deduplication.semantic.stage import SemanticDeduplication
from gristmill.stages.deduplication.semantic.workflow import SemanticDeduplicationWorkflow
from gristmill.stages.text.deduplication.semantic import TextSemanticDeduplicationWorkflow

__all__ = [
    "ExactDeduplication",
    "ExactDeduplicationWorkflow",
    "FuzzyDecontamination",
    "FuzzyDeduplication",
    "FuzzyDeduplicationWorkflow",
    "LineDeduplication",
    "NgramDecontamination",
    "ParagraphDeduplication",
    "SemanticDeduplication",
    "SemanticDeduplicationWorkflow",
    "TextSemanticDeduplicationWorkflow",
]
