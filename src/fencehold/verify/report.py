"""Writes the verdict as one HTML page: no script, nothing loaded from elsewhere, every text from outside escaped."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from html import escape

import fencehold
from fencehold.testing.invariants import Finding
from fencehold.verify.hooks import HookRun
from fencehold.verify.journal import Fault
from fencehold.verify.timeline import timeline
from fencehold.verify.verdict import Verdict

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
    """The whole page."""
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
