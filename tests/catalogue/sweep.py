"""Many candidates in one view, taken apart where they are not right."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from tests.catalogue.candidates import Candidate
from tests.catalogue.oracle import Answer, Oracle, Unanswered
from tests.catalogue.verdict import VERDICTS, Verdict, judge

TOGETHER = 24
"""Candidates that one view computes, if none of them fails anywhere."""
_JOINED = re.compile(r" JOIN every b ON (?=a\.\w+ <)")
_SUMS = {
    "fsum": "sum",
    "kahan_sum": "sum",
    "sumkahan": "sum",
    "sum_no_overflow": "sum",
    "favg": "avg",
}
_ODD_SUM = re.compile(rf"\b({'|'.join(_SUMS)})(?=\()")
_ORDERED = re.compile(r"\(DISTINCT (\w+) ORDER BY \1\)")


@dataclass
class Sweep:
    """A run over candidates; `counts` are by family and verdict."""

    oracle: Oracle = field(default_factory=Oracle)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    stop_at: float = float("inf")
    """By `time.monotonic`: nothing new begins then."""

    tick: Callable[[], None] = lambda: None

    def run(self, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Verdict]]:
        """The verdict on each candidate that DuckDB answers."""
        waiting: dict[str, list[tuple[Candidate, Answer]]] = {}
        for candidate in candidates:
            if time.monotonic() > self.stop_at:
                return
            self.tick()
            try:
                answer = self.oracle.answer(candidate)
            except Unanswered:
                self.counts[candidate.family, "unanswered"] += 1
                continue
            if answer.fails or candidate.shape == "query":
                yield from self._judged([(candidate, answer)])
                continue
            together = waiting.setdefault(candidate.shape, [])
            together.append((candidate, answer))
            if len(together) == TOGETHER:
                yield from self._judged(waiting.pop(candidate.shape))
        for together in waiting.values():
            yield from self._judged(together)

    def _judged(
        self, together: list[tuple[Candidate, Answer]]
    ) -> Iterator[tuple[Candidate, Verdict]]:
        verdict = judge(self.oracle, together)
        if verdict.word != "right" and len(together) > 1:
            middle = len(together) // 2
            yield from self._judged(together[:middle])
            yield from self._judged(together[middle:])
            return
        if verdict.word == "WRONG" and self._is_undetermined(together[0][0]):
            verdict = Verdict("undetermined", verdict.why)
        for candidate, _ in together:
            self.counts[candidate.family, verdict.word] += 1
            yield candidate, verdict

    def _is_undetermined(self, candidate: Candidate) -> bool:
        """Whether DuckDB says what the view says when it plans the query in another way.

        That is its own way, or a filter for the condition of a join: where a member is NULL,
        its joins order unions as structs, while `<` is NULL (D252). Or an order of values that
        are equal, as 30 days and a month, of which it aggregates distinct texts. Or a sum that
        is neither compensated, which makes NaN of an infinity unless that comes last, nor
        wraps beyond 64 bits (D202). Or values that are known, for which it may compute no cast
        that fails of any value.
        """
        filtered = replace(candidate, text=_JOINED.sub(", every b WHERE ", candidate.text))
        ordered = replace(
            candidate,
            text=_ORDERED.sub(r"(DISTINCT \1 ORDER BY \1, \1::VARCHAR)", candidate.text),
        )
        plain = replace(
            candidate, text=_ODD_SUM.sub(lambda name: _SUMS[name[0]], candidate.text)
        )
        others = [
            (self.oracle.with_optimiser, candidate),
            (self.oracle.with_constants, candidate),
            *((self.oracle.answer, other) for other in (filtered, ordered, plain)),
        ]
        return any(self._says(candidate, answer, other) for answer, other in others)

    def _says(
        self, candidate: Candidate, answer: Callable[[Candidate], Answer], other: Candidate
    ) -> bool:
        """Whether the view of a candidate is what DuckDB answers to the other."""
        try:
            return judge(self.oracle, [(candidate, answer(other))]).word == "right"
        except Unanswered:
            return False

    def table(self) -> list[str]:
        """Lines: for each family how many candidates got which verdict."""
        families = sorted({family for family, _ in self.counts})
        lines = [f"{'family':20}" + "".join(f"{word:>14}" for word in VERDICTS)]
        for family in [*families, "all"]:
            numbers = [
                sum(
                    count
                    for (one, word_), count in self.counts.items()
                    if word_ == word and family in (one, "all")
                )
                for word in VERDICTS
            ]
            lines.append(f"{family:20}" + "".join(f"{number:14,}" for number in numbers))
        return lines
