"""The entities of the bundled rows: lists, and syllables that make names which hardly repeat."""

from workloads.bundled.draw import Draw


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


FIRST_NAMES = words(
    "Ada Alan Amir Anna Asha Ben Bela Carl Cora Dan Dora Elif Emma Eric Eva Farid Finn Gita Greta "
    "Hana Hugo Ida Igor Ines Ivan Jack Jana Jon Jude Kai Kira Lara Lena Leo Liam Lina Lola Luca "
    "Maya Mei Mila Nadia Nils Nina Noah Nora Olga Omar Oscar Otto Paul Petra Rafi Rita Rosa Ruth "
    "Sami Sara Sven Tara Tom Una Uma Vera Viktor Wanda Will Yara Yusuf Zoe"
)
_NAME_STARTS = words(
    "Ald Bar Bel Bor Cal Cor Dal Dor Fal Fen Gar Gal Har Hol Jor Kal Kel Kir Lam Lor Mar Mel Mor "
    "Nor Nel Pal Per Ral Ren Ros Sal Sel Sor Tal Tor Val Ver Wal Wen Zel"
)
_NAME_ENDS = words(
    "a an ani ard as away eck ell en enko er eros ett ic ick idge in ina ini ino ish man mond o os "
    "ova ow sen son ston tin ury vik"
)
_PLACE_ENDS = words(
    "bridge burg bury by dale field ford ham haven holm mere mouth port stead ton vale view wick "
    "wood worth"
)
ITEMS = words(
    "apples bags balls beads bells books bottles boxes bricks buttons cakes candles cards chairs "
    "coins cookies cups eggs figs flags flowers hats jars keys kites lamps lemons letters maps "
    "marbles melons mugs nuts oranges pears pencils pens pies plants plates plums posters rings "
    "roses seeds shells shirts spoons stamps stickers stones tickets tiles toys trees"
)
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = words(
    "January February March April May June July August September October November December"
)


def surname(draw: Draw) -> str:
    """Return a family name made of two pieces (about 1,300 different ones)."""
    return draw.choose(_NAME_STARTS) + draw.choose(_NAME_ENDS)


def person(draw: Draw) -> str:
    """Return a first name and a family name."""
    return f"{draw.choose(FIRST_NAMES)} {surname(draw)}"


def place(draw: Draw) -> str:
    """Return the name of a town (about 800 different ones)."""
    return draw.choose(_NAME_STARTS) + draw.choose(_PLACE_ENDS)
