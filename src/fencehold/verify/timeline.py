"""Who held what, and what was done to whom, as one SVG picture."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from fencehold.testing.history import Believed
from fencehold.verify.journal import Fault
from fencehold.verify.verdict import Verdict

WIDTH, LEFT, LANE, GAP, TOP = 1100, 130, 22, 6, 24
LEAST_PX = 2.0
TICKS = 12
EPOCH_PX = 16  # a bar needs so much room for its number
BARS_MAX = 4000

#: One colour per contender's place in the list; white text is readable on each.
COLOURS = (
    "#2f6fb7", "#b3541e", "#2e7d4f", "#8e3f9a", "#9a6a00", "#176d78", "#a8324a", "#5a5fb0",
    "#4d6b1f", "#7a4b2a", "#35608a", "#9c3d7a", "#3f7f6e", "#7d5ab5", "#6b6b2a", "#555f6e",
)  # fmt: skip
FAULT_COLOURS = {
    "kill": "#b3261e", "pause": "#6b7280", "cut": "#d1600a", "restart-client": "#2f6fb7", "slow": "#b08900",
    "clock": "#7d4bb5", "pause-hook": "#0f766e", "failover-hook": "#be185d",
}  # fmt: skip
OTHER = "#6b7280"


def timeline(verdict: Verdict) -> str:
    """The picture; texts in it are escaped."""
    picture = _Picture(verdict)
    body = "".join(picture.drawn())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {picture.height}" width="{WIDTH}" '
        f'height="{picture.height}" role="img" aria-label="timeline of terms and faults">{body}</svg>'
    )


class _Picture:
    def __init__(self, verdict: Verdict) -> None:
        self._began_s = verdict.journal.began_s
        self._lasted_s = max(verdict.took_s, 0.1)
        self._faults = verdict.journal.faults[:BARS_MAX]
        beliefs = [*verdict.beliefs, *verdict.lock_beliefs][:BARS_MAX]
        names = list(dict.fromkeys(belief.name for belief in sorted(beliefs, key=lambda one: one.name)))
        self._holds = [(name, [one for one in beliefs if one.name == name]) for name in names]
        self._places = [f"c{slot}" for slot in range(1, verdict.plan.contenders + 1)]
        self._lanes = [*names, *self._places, "everybody"]

    @property
    def height(self) -> int:
        return TOP + len(self._lanes) * (LANE + GAP) + 44

    def drawn(self) -> Iterator[str]:
        yield from self._grid()
        for number, (_, beliefs) in enumerate(self._holds):
            for belief in beliefs:
                yield self._term(belief, self._y(number))
        for fault in self._faults:
            place = fault.who.partition("-")[0]
            lane = self._places.index(place) if place in self._places else len(self._places)
            yield self._fault(fault, self._y(len(self._holds) + lane))
        yield from self._legend()

    def _y(self, lane: int) -> int:
        return TOP + lane * (LANE + GAP)

    def _x(self, at_s: float) -> float:
        part = min(max((at_s - self._began_s) / self._lasted_s, 0.0), 1.0)
        return LEFT + part * (WIDTH - LEFT - 10)

    def _grid(self) -> Iterator[str]:
        for number, name in enumerate(self._lanes):
            y = self._y(number)
            yield f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{LANE}"/>'
            colour = f' style="fill:{_colour(name)}"' if name in self._places else ""
            yield f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end"{colour}>{escape(name)}</text>'
        step_s = _step(self._lasted_s)
        tick_s = 0.0
        while tick_s <= self._lasted_s:
            x = self._x(self._began_s + tick_s)
            bottom = self._y(len(self._lanes))
            yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>'
            yield f'<text class="axis" x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{tick_s:g} s</text>'
            tick_s += step_s

    def _bar(self, start_s: float, end_s: float, y: int, colour: str, words: str, label: str = "") -> str:
        x = self._x(start_s)
        width = max(self._x(end_s) - x, LEAST_PX)
        number = ""
        if label and width >= EPOCH_PX:
            number = (
                f'<text class="epoch" x="{x + width / 2:.1f}" y="{y + 14}" text-anchor="middle">{escape(label)}</text>'
            )
        return (
            f'<g><title>{escape(words)}</title><rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{LANE - 4}" '
            f'rx="2" fill="{colour}"/>{number}</g>'
        )

    def _term(self, belief: Believed, y: int) -> str:
        start_s, end_s = belief.start - self._began_s, belief.end - self._began_s
        is_lock = belief.name not in ("alpha", "beta")
        epoch = "" if is_lock else f", epoch {belief.epoch}"
        words = f"{belief.name}: {belief.holder_id}{epoch}, from {start_s:.2f} s to {end_s:.2f} s"
        label = belief.holder_id if is_lock else str(belief.epoch)
        return self._bar(belief.start, belief.end, y, _colour(belief.holder_id), words, label)

    def _fault(self, fault: Fault, y: int) -> str:
        end_s = fault.ended_s or fault.began_s
        words = f"{fault.kind} ({fault.who or 'all'}) at {fault.began_s - self._began_s:.1f} s: {fault.detail}"
        return self._bar(fault.began_s, end_s, y, FAULT_COLOURS.get(fault.kind, OTHER), words)

    def _legend(self) -> Iterator[str]:
        y, x = self._y(len(self._lanes)) + 14, LEFT
        found = {fault.kind for fault in self._faults}
        for kind in (kind for kind in FAULT_COLOURS if kind in found):
            yield f'<rect x="{x}" y="{y}" width="12" height="12" rx="2" fill="{FAULT_COLOURS.get(kind, OTHER)}"/>'
            yield f'<text x="{x + 17}" y="{y + 10}">{escape(kind)}</text>'
            x += 40 + 7 * len(kind)


def _colour(who: str) -> str:
    """Return the colour of a contender, the same for all its processes."""
    digits = who.removeprefix("c").partition("-")[0]
    return COLOURS[(int(digits) - 1) % len(COLOURS)] if digits.isdigit() else OTHER


def _step(lasted_s: float) -> float:
    """A round number of seconds, about twelve of them in the picture."""
    for step_s in (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600):
        if lasted_s / step_s <= TICKS:
            return float(step_s)
    return 1200.0
