"""Kinds of events in business, sport, science and culture."""

from workloads.bundled.events import EventTemplates

PROFIT = EventTemplates(
    choices={"goods": ("cars", "bread", "shoes", "phones", "toys", "paper", "coffee", "bicycles")},
    lead=(
        "{company}, a maker of {goods}, published its results on {day}.",
        "The results of {company}, which makes {goods}, came out on {day}.",
    ),
    details=(
        (
            "Its profit was {x} million dollars, after {y} million the year before.",
            "A year ago it earned {y} million dollars, and now {x} million.",
        ),
        (
            "Chief executive {official} plans a new factory in {town}.",
            "A factory in {town} will be built, said chief executive {official}.",
        ),
        ("It will create {n} jobs.", "That means {n} new jobs."),
    ),
    highlights=(
        "Profit of {company} {trend} to {x} million dollars.",
        "Chief executive {official} plans factory in {town}.",
        "{n} jobs will be created.",
    ),
    summary=(
        "{company}, whose profit {trend} to {x} million dollars, will create {n} jobs in {town}."
    ),
)

MERGER = EventTemplates(
    choices={"goods": ("boats", "milk", "paint", "glass", "clothes", "tea", "games", "furniture")},
    lead=(
        "{company} said on {day} that it will buy {rival}.",
        "{rival} will be bought by {company}, both firms said on {day}.",
    ),
    details=(
        ("The price is {n} million dollars.", "It pays {n} million dollars."),
        (
            "{official} will lead the new firm, which makes {goods}.",
            "The new firm makes {goods} and will be led by {official}.",
        ),
        (
            "An office in {town} with {k} workers will close.",
            "{k} people work in an office in {town}, which is to close.",
        ),
    ),
    highlights=(
        "{company} buys {rival} for {n} million dollars.",
        "{official} will lead new firm.",
        "Office in {town} with {k} workers closes.",
    ),
    summary="{company} is to buy {rival} for {n} million dollars and close an office in {town}.",
)

MATCH = EventTemplates(
    choices={
        "game": ("football", "hockey", "handball", "rugby", "basketball"),
        "cup": ("cup", "league", "final", "derby", "tournament"),
    },
    lead=(
        "{town} met {other_town} in the {game} {cup} on {day}.",
        "The {game} {cup} on {day} was between {town} and {other_town}.",
    ),
    details=(
        ("{town} scored {x} and {other_town} {y}.", "{other_town} got {y} points, {town} {x}."),
        (
            "{person} was the best player with {k} points.",
            "With {k} points {person} was the best player.",
        ),
        ("The match was seen by {n} thousand people.", "{n} thousand fans came."),
    ),
    highlights=(
        "{winner_town} beats {loser_town} in {game} {cup}.",
        "Best player {person} makes {k} points.",
        "{n} thousand fans saw match.",
    ),
    summary="{winner_town} beat {loser_town} in the {game} {cup} with {k} points from {person}.",
)

DISCOVERY = EventTemplates(
    choices={
        "find": ("tomb", "ship", "temple", "mosaic", "fossil", "well", "sword"),
        "place": ("a field", "a river", "a hill", "a garden", "a mine", "a car park"),
    },
    lead=(
        "Scientists found an old {find} in {place} near {town}.",
        "Near {town}, an old {find} was found in {place}.",
    ),
    details=(
        (
            "It is {n} hundred years old, said professor {official}.",
            "Professor {official} thinks that it is {n} hundred years old.",
        ),
        ("It was seen first by {person}, a {job}.", "{person}, a {job}, saw it first."),
        (
            "From {day} it will be shown in {other_town}.",
            "It goes on show in {other_town} on {day}.",
        ),
    ),
    highlights=(
        "{find_title} of {n} hundred years is found near {town}.",
        "{job_title} {person} saw it first.",
        "It will be shown in {other_town} from {day}.",
    ),
    summary=(
        "A {find} that is {n} hundred years old, found by {job} {person} near "
        "{town}, will be shown in {other_town}."
    ),
    shared={"job": ("farmer", "student", "driver", "painter", "nurse", "soldier")},
)

BUILDING = EventTemplates(
    choices={
        "thing": ("bridge", "hospital", "library", "stadium", "airport", "school", "tunnel", "park")
    },
    lead=(
        "{town} will get a new {thing}, the council decided on {day}.",
        "On {day} the council of {town} agreed to build a {thing}.",
    ),
    details=(
        ("It will cost {n} million dollars.", "The cost is {n} million dollars."),
        (
            "{company} will do the work, and {rival} lost.",
            "{rival} also made an offer, but {company} was chosen.",
        ),
        (
            "It should open in {k} months, said {official} of the council.",
            "{official} of the council hopes that it opens in {k} months.",
        ),
    ),
    highlights=(
        "New {thing} in {town} will cost {n} million dollars.",
        "{company} will build it.",
        "It opens in {k} months, says {official}.",
    ),
    summary="{company} will build a {thing} in {town} for {n} million dollars.",
)

AWARD = EventTemplates(
    choices={
        "work": ("novel", "film", "song", "play", "poem", "opera"),
        "theme": ("a lost dog", "the sea", "a long war", "two sisters", "an old house", "a train"),
    },
    lead=(
        "{person} won the {prize} Prize for a {work} on {day}.",
        "The {prize} Prize went to {person} on {day} for a {work}.",
    ),
    details=(
        (
            "It is about {theme} and was written in {town}.",
            "It tells of {theme} and was written in {town}.",
        ),
        ("The prize is worth {n} thousand dollars.", "The winner gets {n} thousand dollars."),
        (
            "{official}, who led the jury, chose it from {k} entries.",
            "From {k} entries it was chosen by {official}, who led the jury.",
        ),
    ),
    highlights=(
        "{person} wins {prize} Prize for {work} about {theme}.",
        "Winner gets {n} thousand dollars.",
        "Jury led by {official} had {k} entries.",
    ),
    summary=(
        "{person} has won the {prize} Prize of {n} thousand dollars for a {work} about {theme}."
    ),
)

RECALL = EventTemplates(
    choices={
        "goods": ("heaters", "cheese", "toys", "bikes", "juice", "chairs", "phones", "cakes"),
        "fault": ("glass", "a weak part", "metal", "a wrong label", "mould", "a sharp edge"),
    },
    lead=(
        "{company} is calling back its {goods}, it said on {day}.",
        "On {day}, {company} asked buyers to return its {goods}.",
    ),
    details=(
        ("{fault_title} was found in a shop in {town}.", "A shop in {town} had found {fault}."),
        ("Some {n} thousand were sold.", "Buyers have {n} thousand of them."),
        (
            "Spokesman {official} said that {k} people fell ill or were hurt.",
            "{k} people were harmed, said spokesman {official}.",
        ),
    ),
    highlights=(
        "{company} calls back {n} thousand {goods}.",
        "{fault_title} was found in {town}.",
        "{k} people were harmed, says {official}.",
    ),
    summary="{company} has called back {n} thousand {goods} after {fault} was found in {town}.",
)

BUSINESS = (PROFIT, MERGER, MATCH, DISCOVERY, BUILDING, AWARD, RECALL)
