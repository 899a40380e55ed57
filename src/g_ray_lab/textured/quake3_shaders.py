"""Shader scripts of Quake 3: what the surfaces of a level look like, and which of them are sky, glass or fog."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One layer of a shader."""

    image: str | None = None
    """Name of an image; None for light maps and reflections."""
    is_light_map: bool = False
    is_blended: bool = False
    has_holes: bool = False
    scale: tuple[float, float] = (1.0, 1.0)


@dataclass(frozen=True)
class Shader:
    """What a script says about a surface."""

    stages: tuple[Stage, ...] = ()
    keywords: frozenset[str] = frozenset()
    """Its parameters: sky, nodraw, fog, …, and sprite for faces that turn to the viewer."""

    @property
    def is_sky(self) -> bool:
        return "sky" in self.keywords

    @property
    def is_surface(self) -> bool:
        """Whether it hides what is behind it: nothing that is blended, from its first layer on, does."""
        if self.keywords & {"nodraw", "fog", "sprite"} or not self.stages:
            return False
        first = self.stages[0]
        return first.has_holes or not first.is_blended

    @property
    def is_lit(self) -> bool:
        return any(stage.is_light_map for stage in self.stages)

    @property
    def base(self) -> Stage:
        """The layer that gives the surface its picture: the first with an image."""
        return next((stage for stage in self.stages if stage.image is not None), Stage())


def parse_shaders(text: str) -> dict[str, Shader]:
    """Parse a script into shaders by name, in lower case; braces that do not match end the last shader."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    lines = [line.strip().lower() for line in re.sub(r"([{}])", r"\n\1\n", text).splitlines()]
    shaders: dict[str, Shader] = {}
    name, depth = "", 0
    general: list[list[str]] = []
    stages: list[list[list[str]]] = []
    for line in filter(None, lines):
        if line == "{":
            depth += 1
            if depth == 2:
                stages.append([])
        elif line == "}":
            depth = max(0, depth - 1)
            if depth == 0 and name:
                shaders[name] = _build_shader(general, stages)
                name, general, stages = "", [], []
        elif depth == 0:
            name = line.strip('"')
        else:
            (general if depth == 1 else stages[-1]).append(line.split())
    return shaders


def _build_shader(general: list[list[str]], stages: list[list[list[str]]]) -> Shader:
    keywords = {words[1] for words in general if words[0] == "surfaceparm" and len(words) > 1}
    keywords |= {"sprite" for words in general if words[0] == "deformvertexes" and "autosprite" in words[-1]}
    return Shader(tuple(_build_stage(stage) for stage in stages), frozenset(keywords))


def _build_stage(lines: list[list[str]]) -> Stage:
    """Read the directives that matter here; the first is kept where one comes twice."""
    words = {line[0]: line[1:] for line in reversed(lines) if len(line) > 1}
    image = (words.get("map") or words.get("clampmap") or words.get("animmap", ["", ""])[1:] or [""])[0]
    blend = words.get("blendfunc", [])
    return Stage(
        image=None
        if not image or image.startswith("$") or "environment" in words.get("tcgen", [])
        else image,
        is_light_map=image == "$lightmap",
        is_blended=bool(blend) and blend not in (["gl_one", "gl_zero"],),
        has_holes="alphafunc" in words,
        scale=_find_scale(lines),
    )


def _find_scale(lines: list[list[str]]) -> tuple[float, float]:
    for line in lines:
        if line[:2] == ["tcmod", "scale"] and len(line) >= 4:
            try:
                return float(line[2]), float(line[3])
            except ValueError:
                break
    return 1.0, 1.0
