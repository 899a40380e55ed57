"""Which objects are one product in several colors, prints or flavors: all of them train, or all of them test.

Objects of Objaverse are named by 32 hexadecimal digits and are each a product of their own. Scanned household objects
are named by words: maker and model first, then color, size and a code of the scan,
`Womens_Bluefish_2Eye_Boat_Shoe_in_Linen_Oat_IbrSyJdpT3h`.
"""

LINES = ("Ballet_Flats", "Bahama", "Girl_Scouts", "Ink_Cartridge", "Lunch_Bag", "Lunch_Box", "Pencil_Case")
"""Products whose color or print is named first: these words alone name them, wherever they stand."""

WORDS = 2
"""Leading words that name a product. Some different ones then count as one, which costs nothing but variety."""


def get_product(uid: str) -> str:
    """Return the name of the product that an object is; names of one or two words are their own."""
    for line in LINES:
        if line in uid:
            return line
    return "_".join(uid.split("_")[:WORDS])
