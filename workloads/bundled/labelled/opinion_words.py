"""What opinions of films are made of."""

GOOD = (
    "admirable", "affecting", "amusing", "appealing", "beautiful", "bold", "bracing",
    "brilliant", "captivating", "charming", "clever", "compelling", "daring", "dazzling",
    "delightful", "elegant", "engaging", "enjoyable", "exciting", "exhilarating", "fascinating",
    "fresh", "funny", "gorgeous", "graceful", "gripping", "heartfelt", "honest", "imaginative",
    "impressive", "intelligent", "inventive", "lively", "lovely", "masterful", "memorable",
    "moving", "original", "poignant", "polished", "refreshing", "remarkable", "riveting",
    "sharp", "smart", "stirring", "superb", "tender", "thoughtful", "touching", "witty",
    "wonderful",
)  # fmt: skip
BAD = (
    "awful", "awkward", "bland", "bloated", "boring", "chaotic", "cheap", "clumsy", "contrived",
    "crude", "dated", "dreadful", "dreary", "dull", "empty", "exhausting", "flat",
    "forgettable", "frustrating", "generic", "grating", "hollow", "incoherent", "inept",
    "insipid", "joyless", "lazy", "lifeless", "mediocre", "messy", "muddled", "numbing",
    "obnoxious", "overlong", "pointless", "predictable", "pretentious", "ridiculous", "shallow",
    "silly", "sloppy", "soulless", "stale", "stilted", "stupid", "tedious", "tiresome", "tired",
    "trite", "ugly", "uninspired", "wooden",
)  # fmt: skip
GOOD_DEEDS = (
    "rewards every minute", "lifts the spirits", "earns its tears", "lingers for days",
    "hits every note", "works on every level", "keeps you on edge", "delivers in spades",
    "soars from the start", "sparkles with wit", "breathes new life into the genre",
    "leaves you smiling", "glows with warmth", "knows exactly what it wants",
    "grips from first to last", "wins you over",
)  # fmt: skip
BAD_DEEDS = (
    "wastes every minute", "falls flat", "wears out its welcome", "drags for hours",
    "misses every note", "collapses in the middle", "puts you to sleep", "insults the audience",
    "goes nowhere fast", "drowns in clichés", "runs out of ideas", "leaves you cold",
    "tries your patience", "loses the plot", "stumbles at every turn", "lets everybody down",
)  # fmt: skip
ASPECTS = (
    "acting", "plot", "script", "soundtrack", "dialogue", "ending", "pacing", "camera work",
    "cast", "direction", "editing", "humor", "music", "narration", "opening", "premise",
    "production", "romance", "score", "second half", "set design", "staging", "story",
    "storytelling", "subplot", "finale", "lead performance", "animation", "photography", "tone",
)  # fmt: skip
WORKS = (
    "film", "movie", "drama", "comedy", "thriller", "picture", "debut", "sequel", "remake",
    "documentary", "musical", "western", "satire", "mystery", "adaptation", "fable", "epic",
    "biography", "caper", "romance",
)  # fmt: skip
ASIDES = (
    "in the second half", "for a first feature", "at two hours", "from the first scene",
    "after a slow winter of releases", "on a small budget", "for the most part", "as a whole",
    "in black and white", "by the third act", "with a cast of unknowns", "set in a harbor town",
    "told in flashbacks", "shot over ten years", "on a big screen", "on a rainy afternoon",
    "like its source", "adapted from a stage play", "with subtitles", "in this new version",
)  # fmt: skip
DEGREES = ("", "", "", "very ", "quite ", "truly ", "deeply ", "so ", "utterly ", "often ")
OTHERS = (
    "the critics", "my neighbors", "most reviewers", "the trailers", "the posters", "his fans",
    "her fans", "the studio", "other viewers", "the program notes", "my friends", "the jury",
)  # fmt: skip
