"""Writes the verdict as one HTML page: no script, nothing loaded from elsewhere, every text from outside escaped.

The page has one SVG picture: who held which lease or lock when, and which faults were done to which contender.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from html import escape

import fencehold
from fencehold.testing.history import Believed
from fencehold.testing.invariants import Finding
from fencehold.verify.hooks import HookRun
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

FAULT_ROWS_MAX = 1000

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5b6573; --paper: #fff; --line: #d8dde4; --row: #f5f7f9;
        --good: #14703a; --bad: #b3261e; --open: #8a5a00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --dim: #9aa4b2; --paper: #14181f; --line: #323a46; --row: #1b212a; --good: #5fd08b;
          --bad: #ff8a80; --open: #ffc266; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 72rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
.word { font-weight: 700; } .passed, .held { color: var(--good); } .broken { color: var(--bad); font-weight: 700; }
.inconclusive, .not-checked { color: var(--open); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } caption { text-align: left; }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td small { color: var(--dim); } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--row); padding: .6rem .8rem; overflow-x: auto; white-space: pre-wrap; }
.example { overflow-wrap: anywhere; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); } svg .axis { fill: var(--dim); }
svg .grid { stroke: var(--line); } svg .lane { fill: var(--row); } svg .epoch { fill: #fff; font-size: 9px; }
"""

LEGEND = (
    '<p class="dim">A bar is the time in which a process believed that it led; the number is its epoch. Below, '
    "one lane per contender with the faults done to it. Point at anything to read it.</p>"
)


def page(verdict: Verdict) -> str:
    """Return the verdict as one whole HTML page."""
    plan = verdict.plan
    title = f"fencehold verify: {plan.label}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p><span class="word {verdict.word}">{verdict.word.upper()}</span>. {escape(_sentence(verdict))}</p>',
        f'<p class="dim">{escape(_settings(verdict))}</p>',
        "<h2>Invariants</h2>",
        _table(("invariant", "checked", "state", "first counter-example"), map(_finding, verdict.findings)),
        "<h2>Who held what, and what was done to whom</h2>",
        LEGEND,
        f'<div class="wide">{timeline(verdict)}</div>',
        *_not_tested(verdict.not_tested),
        *_notes(verdict.journal.notes),
        *_hooks(verdict.hooks, verdict.journal.began_s),
        "<h2>Faults</h2>",
        _faults(verdict.journal.faults, verdict.journal.began_s),
    ]
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    meta = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}{meta}</head><body>\n{body}\n</body></html>\n'


def _sentence(verdict: Verdict) -> str:
    if verdict.broken:
        names = ", ".join(one.invariant.name for one in verdict.broken)
        return f"Broken: {names}."
    if not verdict.passed:
        names = ", ".join(one.invariant.name for one in verdict.not_checked)
        return f"Nothing was broken, but these were never put to the test: {names}. Run it for longer."
    checked = sum(one.checked for one in verdict.findings)
    return f"Every invariant was put to the test and held: {checked} checks under {len(verdict.journal.faults)} faults."


def _settings(verdict: Verdict) -> str:
    plan = verdict.plan
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    faults = ", ".join(plan.faults) or "none"
    return (
        f"{now}, fencehold {fencehold.__version__}: {plan.contenders} contenders, leases of {plan.lease_s:g} s, "
        f"{plan.for_s:g} s of faults ({faults}), {verdict.took_s:.0f} s in all."
    )


def _table(columns: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th{_number(column)}>{escape(column)}</th>" for column in columns)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _number(column: str) -> str:
    return ' class="number"' if column in ("checked", "at", "for") else ""


def _finding(one: Finding) -> str:
    more = f" ({one.broken} in all)" if one.broken > 1 else ""
    return (
        f"<tr><td>{escape(one.invariant.name)}<br><small>{escape(one.invariant.promise)}</small></td>"
        f'<td class="number">{one.checked}</td><td class="{one.state.replace(" ", "-")}">{one.state}{more}</td>'
        f'<td class="example">{escape(one.first or "")}</td></tr>'
    )


def _not_tested(found: dict[str, str]) -> list[str]:
    rows = (f"<tr><td>{escape(what)}</td><td>{escape(reason)}</td></tr>" for what, reason in found.items())
    return ["<h2>What could not be tested here</h2>", _table(("what", "why"), rows)] if found else []


def _notes(notes: Sequence[str]) -> list[str]:
    return ["<h2>Notes</h2>", *(f"<p>{escape(note)}</p>" for note in notes)] if notes else []


def _hooks(hooks: Sequence[HookRun], began_s: float) -> list[str]:
    parts = []
    for one in hooks:
        code = "killed: it took too long" if one.exit_code is None else f"exit code {one.exit_code}"
        when = f"at {one.began_s - began_s:.1f} s, for {one.ended_s - one.began_s:.1f} s, {code}"
        parts.append(f"<p>{escape(one.hook)} <code>{escape(one.command)}</code> {escape(when)}</p>")
        parts.append(f"<pre>{escape(one.output) or '(no output)'}</pre>")
    return ["<h2>Hooks</h2>", *parts] if parts else []


def _faults(faults: Sequence[Fault], began_s: float) -> str:
    rows = [_fault(fault, began_s) for fault in faults[:FAULT_ROWS_MAX]]
    if len(faults) > FAULT_ROWS_MAX:
        rows.append(f'<tr><td colspan="5">and {len(faults) - FAULT_ROWS_MAX} more</td></tr>')
    return _table(("at", "for", "fault", "contender", "what happened"), rows)


def _fault(fault: Fault, began_s: float) -> str:
    lasted_s = (fault.ended_s or fault.began_s) - fault.began_s
    return (
        f'<tr><td class="number">{fault.began_s - began_s:.1f} s</td><td class="number">{lasted_s:.1f} s</td>'
        f"<td>{escape(fault.kind)}</td><td>{escape(fault.who or 'all')}</td><td>{escape(fault.detail)}</td></tr>"
    )


# The picture


def timeline(verdict: Verdict) -> str:
    """Return an SVG picture of the run: one row per lease, lock and contender over time. Texts in it are escaped."""
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
    """Return the colour of a contender, by its place in the list: it is the same for all its processes."""
    digits = who.removeprefix("c").partition("-")[0]
    return COLOURS[(int(digits) - 1) % len(COLOURS)] if digits.isdigit() else OTHER


def _step(lasted_s: float) -> float:
    """Return the seconds between two marks of the time axis: a round number, for about twelve marks or fewer."""
    for step_s in (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600):
        if lasted_s / step_s <= TICKS:
            return float(step_s)
    return 1200.0
