"""Kinds of public events: fires, elections, roads, weather, crime and courts."""

from workloads.bundled.events import EventTemplates

FIRE = EventTemplates(
    choices={
        "site": ("warehouse", "hotel", "factory", "school", "theatre", "farm", "museum"),
        "cause": ("a gas leak", "a broken heater", "an old cable", "a candle", "a kitchen stove"),
        "state": ("destroyed", "damaged", "gutted"),
    },
    lead=(
        "A fire {state} a {site} in {town} on {day}.",
        "Flames {state} a {site} in the town of {town} on {day}.",
        "Fire crews were called to {town} on {day}, where a {site} was {state} by flames.",
    ),
    details=(
        (
            "Fire chief {official} said {cause} had started it.",
            "The blaze was caused by {cause}, according to fire chief {official}.",
        ),
        ("{n} people were taken to hospital.", "Doctors treated {n} people for burns and smoke."),
        ("About {k} firefighters fought the flames.", "It took {k} firefighters to put it out."),
    ),
    highlights=(
        "Fire on {day} {state} {site} in {town}.",
        "{n} people are hurt.",
        "Fire chief {official} blames {cause}.",
    ),
    summary=(
        "{n} people have been hurt in a fire at a {site} in {town} that was started by {cause}."
    ),
)

ELECTION = EventTemplates(
    choices={"party": ("Green", "Labour", "Liberal", "Workers", "Farmers", "Citizens")},
    lead=(
        "Voters in {town} chose a new mayor on {day}.",
        "The people of {town} went to the polls on {day} to elect a mayor.",
    ),
    details=(
        (
            "{left} received {x} percent of the votes and {right} {y} percent.",
            "With {y} percent for {right} and {x} percent for {left}, the result "
            "was clear by night.",
        ),
        (
            "The winner belongs to the {party} Party.",
            "The next mayor is a member of the {party} Party.",
        ),
        (
            "{official}, who ran the count, said {k} ballots were not valid.",
            "{k} ballots were thrown out, said {official}, who ran the count.",
        ),
    ),
    highlights=(
        "{winner} beats {loser} to become mayor of {town}.",
        "New mayor is from the {party} Party.",
        "Official {official} says {k} ballots were not valid.",
    ),
    summary="{winner} of the {party} Party has been elected mayor of {town}, beating {loser}.",
)

ROAD = EventTemplates(
    choices={
        "vehicle": ("bus", "lorry", "van", "tram", "taxi"),
        "reason": ("ice", "fog", "heavy rain", "a flat tyre", "a deer on the road"),
    },
    lead=(
        "A {vehicle} left the road near {town} on {day}.",
        "There was an accident near {town} on {day}, when a {vehicle} went off the road.",
    ),
    details=(
        (
            "The driver, {person}, told police that {reason} was to blame.",
            "{person}, the driver, said it happened because of {reason}.",
        ),
        ("{n} passengers were hurt.", "{n} of the people on board were hurt."),
        (
            "The road to {other_town} was closed for {k} hours.",
            "For {k} hours nobody could drive on the road to {other_town}.",
        ),
    ),
    highlights=(
        "{vehicle_title} leaves road near {town}, hurting {n} people.",
        "Driver {person} blames {reason}.",
        "Road to {other_town} is closed for {k} hours.",
    ),
    summary="{n} people were hurt when a {vehicle} driven by {person} left the road near {town}.",
)

STORM = EventTemplates(
    choices={"kind": ("storm", "flood", "snowstorm", "heatwave", "earthquake")},
    lead=(
        "A {kind} hit the town of {town} on {day}.",
        "{town} was hit by a {kind} on {day}.",
        "On {day}, a {kind} reached {town}.",
    ),
    details=(
        ("{n} homes are without power.", "The power is out in {n} homes."),
        (
            "Mayor {official} asked people to stay indoors until {other_day}.",
            "Until {other_day} people should stay at home, said mayor {official}.",
        ),
        ("A shelter has opened in {other_town}.", "People can sleep in a shelter in {other_town}."),
    ),
    highlights=(
        "{kind_title} hits {town} on {day}.",
        "Power is out in {n} homes.",
        "Mayor {official} says to stay indoors until {other_day}.",
    ),
    summary=(
        "A {kind} has left {n} homes in {town} without power and a shelter has "
        "opened in {other_town}."
    ),
)

THEFT = EventTemplates(
    choices={
        "thing": ("painting", "violin", "crown", "statue", "diamond", "clock", "coin collection"),
        "site": ("museum", "castle", "bank", "church", "gallery", "library"),
        "way": ("a back door", "the roof", "a window", "a tunnel", "the cellar"),
    },
    lead=(
        "A {thing} was stolen from a {site} in {town} on {day}.",
        "Thieves took a {thing} from a {site} in {town} on {day}.",
    ),
    details=(
        (
            "They got in through {way}, said police officer {official}.",
            "Police officer {official} said they had come in through {way}.",
        ),
        ("It is worth {n} million dollars.", "Its value is put at {n} million dollars."),
        (
            "It belongs to {person}, who offers a reward of {k} thousand dollars.",
            "The owner, {person}, will pay {k} thousand dollars to get it back.",
        ),
    ),
    highlights=(
        "{thing_title} worth {n} million dollars is stolen in {town}.",
        "Thieves came through {way}, says officer {official}.",
        "Owner {person} offers {k} thousand dollars.",
    ),
    summary=(
        "A {thing} worth {n} million dollars, owned by {person}, has been "
        "stolen from a {site} in {town}."
    ),
)

COURT = EventTemplates(
    choices={
        "crime": ("fraud", "theft", "arson", "bribery", "smuggling", "forgery"),
        "job": ("banker", "doctor", "teacher", "trader", "builder", "lawyer"),
    },
    lead=(
        "A court in {town} sentenced a {job} for {crime} on {day}.",
        "A {job} was found guilty of {crime} by a court in {town} on {day}.",
    ),
    details=(
        (
            "{person} must go to prison for {n} months.",
            "The sentence for {person} is {n} months in prison.",
        ),
        ("Judge {official} called it a sad case.", "It was a sad case, said judge {official}."),
        ("The trial lasted {k} days.", "The verdict came after {k} days."),
    ),
    highlights=(
        "{job_title} {person} is guilty of {crime}.",
        "Judge {official} orders {n} months in prison.",
        "Trial in {town} took {k} days.",
    ),
    summary=(
        "{job_title} {person} has been sent to prison for {n} months for "
        "{crime} by a court in {town}."
    ),
)

RESCUE = EventTemplates(
    choices={
        "who": ("climber", "sailor", "hiker", "diver", "pilot", "fisherman"),
        "where": ("a rock", "an island", "a cliff", "the ice", "a mountain", "a reef"),
    },
    lead=(
        "A {who} was rescued near {town} on {day}.",
        "Rescuers near {town} found a missing {who} on {day}.",
    ),
    details=(
        (
            "{person}, {x}, had been on {where} for {n} days.",
            "For {n} days {person}, aged {x}, was stuck on {where}.",
        ),
        (
            "Rescue leader {official} used a helicopter from {other_town}.",
            "A helicopter from {other_town} was sent by rescue leader {official}.",
        ),
        ("About {k} people took part in the search.", "The search was joined by {k} people."),
    ),
    highlights=(
        "{who_title} {person} is found near {town}.",
        "{person} spent {n} days on {where}.",
        "Rescue leader {official} used helicopter from {other_town}.",
    ),
    summary="{who_title} {person}, {x}, has been rescued near {town} after {n} days on {where}.",
)

PUBLIC = (FIRE, ELECTION, ROAD, STORM, THEFT, COURT, RESCUE)
