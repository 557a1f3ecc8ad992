"""Names in a code snippet that give its label away, and their neutral replacements."""

from __future__ import annotations

import re

_LEAK = re.compile(r"[_-](yes|no)(?![a-z0-9])", re.I)
_QUESTION = ", help me detect"
"""The published prompts go on with this after the code; what follows must stay as it is."""
_DECLARED = re.compile(
    r"(?:^|[;:`])[ \t]*(?:end[ \t]*)?(program|module|submodule)\b[ \t]*(?:\([\w: \t]*\)[ \t]*)?([a-z]\w*)", re.I | re.M
)
_NAMING = re.compile(r"(?:^|[;:`])[ \t]*(?:end[ \t]*)?(?:program|module|submodule|use)\b[^\n;!]*", re.I | re.M)
_NOT_A_UNIT = re.compile(r"procedure|function|subroutine|pure|elemental|recursive|impure|integer|real|logical", re.I)
_FILE = r"(?<![\w./-])[\w./-]*[\w-]\.(?:f90|f95|f03|f08|f77|for|f|cpp|cxx|cc|c)\b"
_HYPHENATED = r"\b(?:DRB\d+(?:-\w+)+|\w+(?:-\w+)*-(?:yes|no)(?![a-z0-9])(?:-\w+)*)"
_TOKEN = re.compile(rf"(?P<file>{_FILE})|(?P<hyphens>{_HYPHENATED})|\b[a-z_]\w*", re.I)
_SOURCE_ENDING = re.compile(r"\.(?:f\d\d|cpp|cxx|cc)$", re.I)
_MARKED = re.compile(
    r"(?i:(?<![a-z])drb)"  # a kernel of DataRaceBench, whose names end in the label
    r"|(?i:(?<![a-z])(?:yes|no)(?![a-z]))|(?<=[a-z0-9])(?:Yes|No|NO)(?![a-z])|(?i:yes\d*$)"
    r"|(?i:(?:(?<![a-z])|data|no)_?races?(?![a-z]))|Race"
)
_PLAIN_WORDS = frozenset({"yes", "no", "yes-or-no", "race", "races"})


def leaked_label(prompt: str) -> str | None:
    """The label that a name in the prompt gives away (``..._orig_no``), by the first such name."""
    found = _LEAK.search(prompt)
    return found[1].lower() if found else None


def mask_names(prompt: str, *, fortran: bool) -> str:
    """The prompt with revealing names replaced by ``program_1``, ``module_1``, ``name_1``, ``file_1.f90``.

    Every Fortran program and module loses its name. So does, whatever its ending, any file, procedure or variable
    whose name speaks of a DataRaceBench kernel, of yes or no, or of a race. Equal names stay equal.
    """
    code, question, rest = prompt.rpartition(_QUESTION)
    if not question:
        code, rest = rest, ""
    names = _Names(code, ignore_case=fortran)
    if fortran:
        code = _mask_units(code, names)
    return _TOKEN.sub(lambda found: _mask_token(found, names), code) + question + rest


class _Names:
    """The neutral names of one prompt, given in order of appearance and never one that is in use."""

    def __init__(self, code: str, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case
        self._given: dict[str, str] = {}
        self._taken = {word.lower() for word in re.findall(r"\w+", code)}

    def __contains__(self, name: str) -> bool:
        return self._key(name) in self._given

    def neutral(self, name: str, kind: str, ending: str = "") -> str:
        key = self._key(name)
        if key not in self._given:
            free = next(new for n in range(1, len(self._taken) + 2) if (new := f"{kind}_{n}") not in self._taken)
            self._taken.add(free)
            self._given[key] = free + ending
        return self._given[key]

    def _key(self, name: str) -> str:
        return name.lower() if self._ignore_case else name


def _mask_units(code: str, names: _Names) -> str:
    """Renames programs and modules where they are declared, ended and used.

    Elsewhere the same word may be a keyword or part of a directive (``program reduction``) and is left alone.
    """
    for kind, name in _DECLARED.findall(code):
        if not _NOT_A_UNIT.fullmatch(name):
            names.neutral(name, "program" if kind.lower() == "program" else "module")

    def rename(word: re.Match[str]) -> str:
        return names.neutral(word[0], "") if word[0] in names else word[0]

    return _NAMING.sub(lambda statement: re.sub(r"[A-Za-z]\w*", rename, statement[0]), code)


def _mask_token(found: re.Match[str], names: _Names) -> str:
    token = found[0]
    if found["file"]:
        stem, dot, ending = token.rpartition(".")
        masked = bool(_MARKED.search(stem) or _SOURCE_ENDING.search(token))
        return names.neutral(token, "file", dot + ending) if masked else token
    masked = token.lower() not in _PLAIN_WORDS and bool(found["hyphens"] or _MARKED.search(token))
    return names.neutral(token, "name") if masked else token
