"""Rules for images with captions: LAION-400M (Schuhmann et al., 2021) and DataComp (Gadre et al., 2023)."""

from __future__ import annotations

import math

from gristmill.stages.text.recipes.recipe import Recipe, Rule

CAPTION = "caption"

LAION = Recipe(
    "laion-400m",
    1,
    "LAION-400M's rules for images with captions, before CLIP",
    "Schuhmann et al. 2021, LAION-400M: Open Dataset of CLIP-Filtered 400 Million Image-Text Pairs, arXiv 2111.02114, "
    "section 2.1.1",
    (
        Rule(
            "caption_length",
            "CharacterCountFilter",
            {"min_characters": 5},
            "Captions of at least 5 characters.",
            field=CAPTION,
        ),
        Rule(
            "image_bytes",
            "ImageBytesFilter",
            {"min_bytes": 5000},
            "Images of at least 5 KB.",
            "KB is taken as 1,000 bytes; the paper does not say. The next steps of the paper need other stages: "
            "duplicates of URL and caption, and a CLIP similarity of at least 0.3.",
        ),
    ),
)

DATACOMP = Recipe(
    "datacomp-basic",
    1,
    "DataComp's basic filtering of images with captions",
    "Gadre et al. 2023, DataComp: In search of the next generation of multimodal datasets, arXiv 2304.14108, "
    "paragraph 'Basic filtering', with the thresholds of load_uids_with_basic_filter_helper in "
    "baselines/apply_filter.py of github.com/mlfoundations/datacomp, which are the same for all scales of the pool",
    (
        Rule(
            "caption_words",
            "WordCountFilter",
            {"min_words": 3, "max_words": math.inf},
            "Captions of more than 2 words.",
            "Words are what white space separates, as in the code.",
            field=CAPTION,
        ),
        Rule(
            "caption_length",
            "CharacterCountFilter",
            {"min_characters": 6},
            "Captions of more than 5 characters.",
            field=CAPTION,
        ),
        Rule(
            "caption_language",
            "FastTextLangId",
            {"lang": "en", "min_langid_score": 0.0, "max_characters": None},
            "English captions: fastText's most probable language, whatever its probability.",
            "The code uses lid.176.bin. lid.176.ftz, the compressed form of the same model, is the default here: set "
            "caption_language.model_path to the other file for the published one.",
            field=CAPTION,
        ),
        Rule(
            "short_side",
            "ShortSideFilter",
            {"min_side": 200},
            "Images whose shorter side has at least 200 pixels.",
            "Exactly 200 is kept, as in the code. There it is the size before the image was resized for the pool.",
        ),
        Rule(
            "aspect_ratio",
            "AspectRatioFilter",
            {"max_ratio": 3.0},
            "Images whose longer side is at most 3 times the shorter one.",
            "Exactly 3 is kept, as in the code.",
        ),
    ),
)
