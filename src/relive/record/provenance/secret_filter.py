"""What counts as a secret, by name or by shape; texts, command lines and values without the secrets in them.

Three strengths, since a record has to stay useful: `text` removes what is a secret by its shape wherever it occurs,
`message` also values of names in prose that can only be secrets, `word` values of all names that are secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from relive.store.journal import Redaction

REDACTED = "***"

_SECRET_WORDS = frozenset(
    "secret secrets pwd passphrase passcode apikey apikeys accesskey secretkey privatekey credential credentials creds "
    "cred auth oauth authorization bearer jwt cookie cookies private dsn sas signature".split()
)
_SECRET_ENDINGS = ("token", "secret", "password", "passwd")
# Ambiguous words: secret, unless a neighbouring word shows that they belong to a model or a table.
_AMBIGUOUS_WORDS = frozenset("token key pass session".split())
_HARMLESS_NEIGHBOURS = frozenset(
    "pad eos bos mask unk cls class sep special new image num n max min total per type types dim dims size len length "
    "count limit embedding embeddings dropout batch value query values heads head hidden padding through forward "
    "backward level wise mixer mixing index vocab merge drop prune sort group join primary foreign by label labels "
    "text target metric feature features input inputs output outputs obs observation column loss reward prompt answer "
    "question attention attn rope start end stop prefix suffix register distill first second last one two single "
    "multi".split()
)
# Several keys or tokens are those of a model or a table, unless a word before them tells otherwise.
_PLURALS = {"tokens": "token", "keys": "key", "sessions": "session"}
_QUALIFIERS = frozenset(
    "api access secret private auth refresh bearer client account signing encryption master service".split()
)
# In prose, a name is followed by much that is no value: only these names count.
_PLAIN_SECRETS = frozenset(
    "pwd passwd password passwords passphrase passcode secret secrets apikey apikeys accesskey secretkey privatekey "
    "credentials authorization".split()
)
_SIGNATURE_PARAMETERS = frozenset("sig signature key token code policy key-pair-id googleaccessid".split())

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NUMBER = re.compile(r"[+-]?(?P<whole>\d[\d_]*)?(?P<rest>\.\d*)?([eE][+-]?\d+)?|[+-]?(nan|inf)|true|false|none", re.I)
_MAX_DEPTH = 8  # what is nested deeper, or holds itself, counts as secret
_MIN_KNOWN_CHARS = 6  # a shorter value may be an ordinary word
_MAX_NESTED_PAIRS = 4  # `a=b=c: password=…`
_SHORT_NUMBER_DIGITS = 3  # a number with more digits may be a PIN
# A text without any of these holds nothing that has the shape of a secret; looking for them takes a microsecond.
_MARKS = (
    "://", "sk-", "sk_", "rk_", "hf_", "gh", "glpat-", "AKIA", "ASIA", "AIza", "xox", "eyJ", "npm_", "pypi-", "relive_",
    "uthorization", "UTHORIZATION", "earer", "-----BEGIN",
)  # fmt: skip
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_BARE_PASSWORD_FLAG = "-p"
_ORDINARY = re.compile(r"[\w.:~-]*(/[\w.,:=+~-]*)+|[\w-]*\.[\w.-]*|[A-Za-z]+([_-][A-Za-z]+)*")  # a path, file or words


def is_secret(name: str) -> bool:
    """Whether a variable or option of this name holds a secret, which must not be recorded."""
    words = _words(name)
    return any(_is_secret_word(words, at) for at in range(len(words)))


def is_ordinary(value: str) -> bool:
    """Whether a text is a number, a path, the name of a file or words: a secret hardly looks like that."""
    return bool(_NUMBER.fullmatch(value) or _ORDINARY.fullmatch(value))


def hides(name: str, value: Any) -> bool:
    """Whether this value is a secret because of its name. Empty ones, truth values and most numbers never are."""
    return is_secret(name) and _is_kept_secret(name, value, _MAX_DEPTH)


def _is_kept_secret(name: str, value: Any, depth: int) -> bool:
    if value is None or isinstance(value, bool | float) or hasattr(type(value), "dtype"):
        return False
    if isinstance(value, int):
        return _may_be_pin(name, str(value))
    if isinstance(value, str):
        return bool(value.strip()) and (not _NUMBER.fullmatch(value.strip()) or _may_be_pin(name, value.strip()))
    if isinstance(value, Mapping | list | tuple | set | frozenset):  # one of numbers only is a setting
        items = value.values() if isinstance(value, Mapping) else value
        return not depth or any(_is_kept_secret(name, item, depth - 1) for item in items)
    return True


class SecretFilter:
    """Removes secrets from what a run records; `patterns` are further regular expressions of texts that are secret."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._known: frozenset[str] = frozenset()

    def text(self, text: str) -> str:
        """Removes what is a secret by its shape: passwords and signatures in URLs, well-known tokens, private keys."""
        if any(mark in text for mark in _MARKS):
            text = _shapes().remove_from(text)
        for pattern in self._patterns:
            text = pattern.sub(lambda found: REDACTED if found[0] else "", text)
        return text

    def message(self, text: str) -> str:
        """Removes secrets from prose: by shape, `password=…`, `"api_key": "…"` and `--token …`."""
        text = self.text(text)
        if "=" in text or ":" in text:
            text = _without_secret_pairs(text, _MAX_NESTED_PAIRS)
        if "--" in text:
            text = _shapes().flag.sub(lambda found: _without_value(found, is_secret(found["name"])), text)
        return text

    def remember(self, *values: Any) -> None:
        """Remembers values that are secret by their name, so that they can be removed where they are printed."""
        self._known |= {text for value in values if len(text := str(value).strip()) >= _MIN_KNOWN_CHARS}

    def printed(self, text: str) -> str:
        """Removes secrets from a text that was printed: as from prose, and the values that are known to be secret."""
        for value in self._known:
            text = text.replace(value, REDACTED)
        return self.message(text)

    def knows_any_in(self, text: str) -> bool:
        """Whether a text holds a value that is known to be secret."""
        return any(value in text for value in self._known)

    def word(self, text: str) -> str:
        """Removes secrets from a word of a command line, the value of a variable or the `repr` of an object."""
        text = self.text(text)
        if "=" not in text and ":" not in text:
            return text
        text = _shapes().pair.sub(lambda found: _without_value(found, is_secret(found["name"])), text)
        assignment = _shapes().assignment.fullmatch(text)
        return _without_value(assignment, is_secret(assignment["name"])) if assignment else text

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Removes secrets from a command line: `--token abc`, `-p abc`, `password=abc`, `https://me:abc@host`."""
        cleaned: list[str] = []
        flag = ""
        for part in argv:
            hide = bool(flag) and not part.startswith("-") and _flag_hides(flag, part)
            cleaned.append(REDACTED if hide else self.word(part))
            flag = part if _FLAG.fullmatch(part) else ""
        return cleaned

    def fields(self, form: Any) -> Any:
        """Removes secrets from all texts of the fields of a line, as from prose."""
        if isinstance(form, str):
            return self.message(form)
        if isinstance(form, dict):
            return {key: self.fields(item) for key, item in form.items()}
        return [self.fields(item) for item in form] if isinstance(form, list | tuple) else form

    @property
    def logged(self) -> Redaction:
        """For logged values: by shape only, since `token` and `key` are words of models and data as well."""
        return Redaction(self.text, self.text, lambda _name, _value: False)

    @property
    def settings(self) -> Redaction:
        """For args and tags: by name and by shape."""
        return Redaction(self.message, self.word, hides)


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _is_secret_word(words: Sequence[str], at: int) -> bool:
    word, before = words[at], words[max(0, at - 1) : at]
    if word in _PLURALS:
        return bool(before) and before[0] in _QUALIFIERS
    if word in _AMBIGUOUS_WORDS:
        return not {*before, *words[at + 1 : at + 2]} & _HARMLESS_NEIGHBOURS
    return word in _SECRET_WORDS or word.startswith("passw") or word.endswith(_SECRET_ENDINGS)


def _is_plain_secret(name: str) -> bool:
    """Whether a name in prose can only be that of a secret: `key` and `token` alone are not."""
    words = _words(name)
    if not words:
        return False
    last, before = _PLURALS.get(words[-1], words[-1]), words[-2:-1]
    if last == "key":
        return bool(before) and before[0] in _QUALIFIERS
    if last == "token":
        return bool(before) and is_secret(name)
    return last in _PLAIN_SECRETS or last.endswith(_SECRET_ENDINGS)


def _may_be_pin(name: str, number: str) -> bool:
    """Whether a number is a secret: `password=123456` is, `password_reset_rate=0.1` and `key=3` are not."""
    words = _words(name)
    digits = number.replace("_", "")
    return digits.isdecimal() and len(digits) > _SHORT_NUMBER_DIGITS and _is_secret_word(words, len(words) - 1)


def _flag_hides(flag: str, value: str) -> bool:
    # `-p` is a path, a port or a name of something far more often than a password, and a replay needs those.
    if flag == _BARE_PASSWORD_FLAG:
        return not is_ordinary(value)
    return hides(flag, value)


def _without_secret_pairs(text: str, depth: int) -> str:
    """Hides the values of names that can only be secrets, also in the value of another: `ValueError: password=…`."""

    def replace(found: re.Match[str]) -> str:
        if _is_plain_secret(found["name"]):
            return _without_value(found, True)
        value = found["value"]
        if not depth or ("=" not in value and ":" not in value):
            return found[0]
        return found[0][: found.start("value") - found.start()] + _without_secret_pairs(value, depth - 1)

    return _shapes().pair.sub(replace, text)


def _without_value(found: re.Match[str], is_name_secret: bool) -> str:
    value = found["value"]
    bare = value.strip("\"'")
    if not is_name_secret or bare == REDACTED or not hides(found["name"], bare):
        return found[0]
    quote = value[-1] if len(value) > 1 and value[-1] in "\"'" and value[0] == value[-1] else ""
    start, end = found.start("value") - found.start(), found.end("value") - found.start()
    return found[0][:start] + quote + REDACTED + quote + found[0][end:]


class _Shapes:
    """The regular expressions; made when a text needs them, since compiling them takes milliseconds."""

    def __init__(self) -> None:
        quoted = r"""[bBrRuU]{0,2}"(?:[^"\\]|\\.)*"|[bBrRuU]{0,2}'(?:[^'\\]|\\.)*'"""
        plain = r"""[^\s,;&{}\[\]"'][^\s,;&{}\[\]]*"""
        # The lookbehind keeps the time linear: a name is tried once, not from each of its characters.
        self.pair = re.compile(rf"""(?<![\w.-])(?P<name>[\w.-]+)["']?\s*[=:]\s*(?P<value>{quoted}|{plain})""")
        self.flag = re.compile(r"(?<!\S)(?P<name>--[A-Za-z][\w.-]*)[ =]+(?P<value>[^\s-]\S*)")
        self.assignment = re.compile(r"(?P<name>[\w.+/-]*\w)\s*[=:]\s*(?P<value>[^{\[].*)", re.DOTALL)
        self._url = re.compile(r"[A-Za-z][\w+.-]{0,30}://[^\s<>\"']+")
        self._password = re.compile(r"(://[^\s/:@?#]*):[^\s/?#]*@")
        # Database drivers accept passwords with characters that an URL must escape.
        self._lenient_password = re.compile(r"""(://[^\s/:@?#]*):[^\s"']*@""")
        self._parameter = re.compile(r"[?&;](?P<name>[\w.-]+)=(?P<value>[^&;#\s\"']+)")
        self._token = re.compile(
            r"\b(?:hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{15,}"
            r"|sk-(?:ant|proj|svcacct)-[\w-]{20,}|sk-(?:\w+-){0,5}[A-Za-z0-9]{16,}[\w-]*|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
            r"|A[KS]IA[A-Z0-9]{16}\b|AIza[\w-]{35}|xox[abeoprs]-[\w-]{10,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{50,}"
            r"|relive_[0-9a-f]+_[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
        )
        self._header = re.compile(
            r"""(?P<name>\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?)"""
            r"""(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s"',;]+""",
            re.IGNORECASE,
        )
        self._bearer = re.compile(r"(?P<name>\b[Bb]earer\s+)(?:(?=[^\s\"']*\d)[^\s\"',;]{8,}|[^\s\"',;]{20,})")
        self._private_key = re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
        )

    def remove_from(self, text: str) -> str:
        text = self._private_key.sub(REDACTED, text)
        text = self._url.sub(lambda found: self._without_credentials(found[0]), text)
        text = self._header.sub(rf"\g<name>{REDACTED}", text)
        text = self._bearer.sub(rf"\g<name>{REDACTED}", text)
        return self._token.sub(REDACTED, text)

    def _without_credentials(self, url: str) -> str:
        is_strict = url.startswith(("http", "ws", "s3", "gs", "ftp", "git", "ssh"))
        url = (self._password if is_strict else self._lenient_password).sub(rf"\1:{REDACTED}@", url)
        return self._parameter.sub(_without_parameter, url)


def _without_parameter(found: re.Match[str]) -> str:
    name = found["name"].lower()
    signs = name in _SIGNATURE_PARAMETERS or name.startswith(("x-amz-", "x-goog-"))
    return f"{found[0][0]}{found['name']}={REDACTED}" if signs or is_secret(name) else found[0]


@lru_cache(maxsize=1)
def _shapes() -> _Shapes:
    return _Shapes()
