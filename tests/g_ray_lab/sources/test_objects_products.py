"""Variants of a product are on one side of the split."""

import re

import pytest

from g_ray_lab.sources.draws import hash_to_unit
from g_ray_lab.sources.object_index import assign_split, get_product

# Written by hand: the same thing in other colors, prints or flavors, or scanned twice.
FAMILIES = (
    ("Great_Jones_Wingtip", "Great_Jones_Wingtip_j5NV8GRnitM", "Great_Jones_Wingtip_kAqSg6EgG0I"),
    ("Granimals_20_Wooden_ABC_Blocks_Wagon", "Granimals_20_Wooden_ABC_Blocks_Wagon_85VdSftGsLi"),
    ("ASICS_GELLinksmaster_WhiteCoffeeSand", "ASICS_GELLinksmaster_WhiteSilverCarolina_Blue"),
    ("Adrenaline_GTS_13_Color_WhtObsdianBlckOlmpcSlvr_Size_70", "Adrenaline_GTS_13_Color_DrkDenim_Size_50"),
    ("Womens_Bluefish_2Eye_Boat_Shoe_in_Tan", "Womens_Bluefish_2Eye_Boat_Shoe_in_Linen_Oat_IbrSyJdpT3h"),
    ("Womens_Suede_Bahama_in_Graphite_Suede_cUAjIMhWSO9", "Mens_Bahama_in_Black_b4ADzYywRHl"),
    ("Wild_Copper_Tieks_Metallic_Italian_Leather_Ballet_Flats", "Tieks_Ballet_Flats_Electric_Snake"),
    ("Twinlab_100_Whey_Protein_Fuel_Chocolate", "Twinlab_100_Whey_Protein_Fuel_Vanilla"),
    ("Epson_Ink_Cartridge_126_Yellow", "Epson_273XL_Ink_Cartridge_Magenta"),
    ("Ecoforms_Plant_Saucer_S17MOCHA", "Ecoforms_Plant_Saucer_S14NATURAL"),
    ("Horses_in_Pink_Pencil_Case", "Wishbone_Pencil_Case"),
    ("QAbsorb_CoQ10", "QAbsorb_CoQ10_53iUqjWjW3O"),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_variants_are_one_product(family):
    assert len({get_product(uid) for uid in family}) == 1
    assert len({assign_split(uid) for uid in family}) == 1


def test_objects_without_words_are_their_own_product():
    """The split of Objaverse, of generated objects and of plain names is what it was."""
    for uid in ("b397371442084754a51c5e3f8ad74a6a", "teapot", "procedural_00012", "object7"):
        assert get_product(uid) == uid
        assert assign_split(uid) == ("test" if hash_to_unit(uid) < 0.1 else "train")


COLORS = (
    *(
        "Black",
        "White",
        "Red",
        "Blue",
        "Green",
        "Yellow",
        "Orange",
        "Pink",
        "Purple",
        "Brown",
        "Gray",
        "Grey",
    ),
    *("Silver", "Gold", "Navy", "Tan", "Teal", "Turquoise", "Lavender", "Magenta", "Cyan", "Coral", "Mocha"),
    *("Harvest", "Sand", "Natural", "Avocado", "Vanilla", "Chocolate"),
)


def strip_variant(uid: str) -> str:
    """Remove the code of a scan and words of color and flavor: what is left names a product, found in another way."""
    name = re.sub(r"_(?=\w*[a-z])(?=\w+[A-Z0-9])[A-Za-z0-9]{11}$", "", uid)
    name = re.sub("|".join(COLORS), "", name, flags=re.IGNORECASE)
    return re.sub(r"_+", "_", name).strip("_")


def test_no_product_of_the_scanned_objects_is_on_both_sides(shared_data):
    names = sorted(path.stem for path in (shared_data / "gso_mini" / "objects").glob("*.npz"))
    split = {side: [uid for uid in names if assign_split(uid) == side] for side in ("train", "test")}
    assert len(names) == 809 and 50 < len(split["test"]) < 120
    for same in (get_product, strip_variant):
        trained, tested = ({same(uid) for uid in split[side]} for side in ("train", "test"))
        assert not trained & tested
