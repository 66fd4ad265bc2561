"""Each version of an object is parsed once."""

from __future__ import annotations

import pytest

from paddlewheel.kube.ports import Object
from paddlewheel.operator.memo import Memo


def make_object(uid: str = "u", version: str = "1") -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": version}}


def test_one_version_is_parsed_once_and_the_next_anew() -> None:
    parsed: list[str] = []

    def parse(obj: Object) -> str:
        parsed.append(obj["metadata"]["resourceVersion"])
        return parsed[-1]

    memo, first, second = Memo(parse), make_object(), make_object(version="2")
    assert [memo(first), memo(first), memo(second), memo(second)] == ["1", "1", "2", "2"]
    assert parsed == ["1", "2"]


def test_only_the_last_version_is_kept_until_it_is_forgotten() -> None:
    memo = Memo(lambda obj: obj)
    for version in ("1", "2", "3"):
        memo(make_object(version=version))
    assert len(memo) == 1
    memo.forget(make_object())
    assert len(memo) == 0
    memo.forget(make_object())


def test_what_cannot_be_parsed_is_not_remembered() -> None:
    def fail(_: Object) -> None:
        raise ValueError

    memo = Memo(fail)
    for _ in range(2):
        with pytest.raises(ValueError):
            memo(make_object())
    assert len(memo) == 0
