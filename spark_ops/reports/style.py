"""The style sheet of a report follows the reader's light or dark setting, and fits phones and paper.

Colours are those of the management UI (css/theme.css). It has no URLs, no fonts of its own and no motion.
"""

from typing import Final

_LIGHT: Final = """
  --canvas: #f5f5f8; --surface: #ffffff; --sunken: #f5f5f9; --line: #e2e2ea; --line-strong: #c9c9d6;
    --grid: #ececf2;
  --text: #1b1b26; --muted: #62627a; --accent: #5b4bd6; --accent-soft: #ecebfb;
  --good: #0d7350; --good-soft: #e0f4ec; --warn: #94600a; --warn-soft: #fcf0d6; --bad: #c42b3f; --bad-soft: #fde7ea;
  --info: #2363b8; --info-soft: #e4eefb; --quiet-soft: #ededf2; --before: #bdbdd0; --warn-fill: #dfa12c;
  --shadow: 0 1px 2px rgb(20 20 50 / 5%), 0 1px 6px rgb(20 20 50 / 4%);
  --c0: #5b4bd6; --c1: #d98a00; --c2: #2a9d72; --c3: #3b82d9; --c4: #d04255; --c5: #0fa3b1; --c6: #c65bb0;
    --c7: #8c7a4b;
"""

_DARK: Final = """
  --canvas: #13131a; --surface: #1b1b25; --sunken: #20202b; --line: #2c2c3a; --line-strong: #44445a;
    --grid: #282835;
  --text: #ececf4; --muted: #a0a0b8; --accent: #a294ff; --accent-soft: #2b2748;
  --good: #4ccf9c; --good-soft: #17352b; --warn: #f0b64a; --warn-soft: #3a2e13; --bad: #ff7485; --bad-soft: #42191f;
  --info: #7db4ff; --info-soft: #182c47; --quiet-soft: #2a2a38; --before: #55556c; --warn-fill: #e0a53a;
  --shadow: 0 1px 2px rgb(0 0 0 / 30%);
  --c0: #a294ff; --c1: #f5b04a; --c2: #4ccf9c; --c3: #6aa9ff; --c4: #ff7485; --c5: #4fd0dc; --c6: #ee8fda;
    --c7: #c9b78d;
"""

_BASE: Final = """
*, *::before, *::after { box-sizing: border-box; }
html { background: var(--canvas); scroll-behavior: auto; }
body { margin: 0; background: var(--canvas); color: var(--text); overflow-wrap: anywhere;
  font: 14px/1.5 "Inter", ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
    "Noto Sans", sans-serif;
  -webkit-font-smoothing: antialiased; -webkit-text-size-adjust: 100%; }
h1, h2, h3, p, ul, dl, dd, figure { margin: 0; padding: 0; }
h1, h2, h3 { line-height: 1.25; font-weight: 650; letter-spacing: -.01em; }
h2 { font-size: 17px; } h3 { font-size: 14px; }
ul { list-style: none; }
small { color: var(--muted); font-size: 12.5px; }
code { font: 12.5px ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
data, time { font-variant-numeric: tabular-nums; white-space: nowrap; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 4px; }
svg { display: block; }
.unknown { color: var(--muted); }
.arrow { color: var(--muted); }
.is-good { --tone: var(--good); --soft: var(--good-soft); --fill: var(--good); }
.is-warn { --tone: var(--warn); --soft: var(--warn-soft); --fill: var(--warn-fill); }
.is-bad { --tone: var(--bad); --soft: var(--bad-soft); --fill: var(--bad); }
.is-info { --tone: var(--info); --soft: var(--info-soft); --fill: var(--info); }
.is-plan { --tone: var(--accent); --soft: var(--accent-soft); --fill: var(--accent); }
.is-quiet { --tone: var(--muted); --soft: var(--quiet-soft); --fill: var(--muted); }
"""

_FRAME: Final = """
.top { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 12px; max-width: 1240px; margin: 0 auto;
  padding: 16px 24px 12px; }
.brand { display: inline-flex; align-items: center; gap: 9px; font-size: 17px; font-weight: 700;
  letter-spacing: -.02em; }
.logo { width: 30px; height: 30px; }
.what-it-is { padding-left: 12px; border-left: 1px solid var(--line-strong); color: var(--muted); }
.cluster { padding: 2px 11px; border: 1px solid var(--line); border-radius: 99px; background: var(--surface);
  font-size: 13px; font-weight: 600; }
.written { margin-left: auto; color: var(--muted); font-size: 13px; }
main { display: flex; flex-direction: column; gap: 16px; max-width: 1240px; margin: 0 auto; padding: 0 24px 24px; }
footer { max-width: 1240px; margin: 0 auto; padding: 0 24px 32px; color: var(--muted); font-size: 12.5px; }
.hero { display: flex; align-items: center; gap: 32px; padding: 26px 32px; border-radius: 14px;
  border: 1px solid color-mix(in srgb, var(--tone) 28%, transparent);
  background: color-mix(in srgb, var(--soft) 70%, var(--surface)); }
.hero-text { flex: 1; min-width: 0; }
.verdict { display: flex; align-items: center; gap: 8px; margin-bottom: 8px; color: var(--tone); font-size: 15px;
  font-weight: 700; letter-spacing: .01em; }
.icon { width: 24px; height: 24px; flex: none; fill: none; stroke: currentcolor; stroke-width: 2;
  stroke-linecap: round;
  stroke-linejoin: round; }
.hero h1 { max-width: 46ch; font-size: 25px; line-height: 1.3; letter-spacing: -.018em; text-wrap: balance; }
.lead-text { max-width: 78ch; margin-top: 10px; font-size: 15px; }
.score { display: flex; flex: none; flex-direction: column; align-items: center; min-width: 132px; }
.dial-box { position: relative; width: 112px; height: 112px; }
.dial-box b { position: absolute; inset: 0; display: flex; align-items: center; justify-content: center;
  font-size: 36px; font-weight: 700; letter-spacing: -.04em; }
.dial { width: 100%; height: 100%; overflow: visible; }
.dial circle { fill: none; stroke-width: 9; }
.dial .track { stroke: color-mix(in srgb, var(--tone) 16%, var(--surface)); }
.dial .planned { stroke: var(--accent); opacity: .38; }
.dial .fill { stroke: var(--fill); }
.score-word { margin-top: 6px; color: var(--muted); font-size: 12.5px; }
.score-then { margin-top: 2px; color: var(--accent); font-size: 13px; font-weight: 600; }
.score-then .arrow { color: inherit; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px; }
.tile { display: flex; flex-direction: column; padding: 12px 16px 13px; border: 1px solid var(--line);
  border-radius: 10px; background: var(--surface); box-shadow: var(--shadow); }
.tile b { color: var(--text); font-size: 23px; font-weight: 650; letter-spacing: -.02em; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.tile.is-bad b, .tile.is-warn b, .tile.is-good b { color: var(--tone); }
.tile > span { color: var(--muted); font-size: 13px; }
.contents ul { display: flex; flex-wrap: wrap; gap: 2px 18px; padding: 0 4px; font-size: 13.5px; font-weight: 550; }
.card { padding: 18px 22px 22px; border: 1px solid var(--line); border-radius: 12px; background: var(--surface);
  box-shadow: var(--shadow); scroll-margin-top: 12px; }
.card > header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 14px; margin-bottom: 14px; }
.card h3 { margin: 20px 0 8px; }
.note { color: var(--muted); font-size: 13px; }
.empty { color: var(--muted); }
.more { margin-top: 10px; color: var(--muted); font-size: 13px; }
.badge { display: inline-block; padding: 0 8px; border-radius: 99px; background: var(--soft); color: var(--tone);
  font-size: 12px; font-weight: 600; line-height: 1.65; white-space: nowrap; }
.legend { display: flex; flex-wrap: wrap; gap: 3px 18px; margin: 0 0 8px; color: var(--muted); font-size: 13px; }
.legend li { display: inline-flex; align-items: center; gap: 7px; }
.swatch { display: inline-block; width: 11px; height: 11px; flex: none; border-radius: 3px; }
.swatch.before { background: var(--before); } .swatch.after { background: var(--accent); }
.swatch.mean { width: 2px; height: 14px; border-radius: 0; background: var(--text); opacity: .55; }
.swatch.seen { background: color-mix(in srgb, var(--good) 45%, var(--surface)); }
.swatch.hole { background: var(--bad); }
.evidence { display: flex; flex-wrap: wrap; gap: 8px 28px; }
.evidence > div { min-width: 0; }
.evidence dt { color: var(--muted); font-size: 12px; line-height: 1.35; }
.evidence dd { font-weight: 600; font-variant-numeric: tabular-nums; }
.evidence + .legend { margin-top: 16px; }
.is-sources dd { font-weight: 450; }
"""

_CONTENT: Final = """
.findings { display: grid; gap: 12px; }
.finding { padding: 13px 18px 15px; border: 1px solid var(--line); border-left: 4px solid var(--line-strong);
  border-radius: 10px; background: var(--sunken); }
.finding.is-crit { border-left-color: var(--bad); } .finding.is-warn { border-left-color: var(--warn-fill); }
.finding.is-info { border-left-color: var(--info); }
.finding > header { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 10px; }
.finding h3 { margin: 0; font-size: 15px; }
.side { display: flex; flex-wrap: wrap; gap: 0 16px; margin-left: auto; color: var(--muted); font-size: 13px; }
.subject { color: var(--muted); }
.finding.is-crit { background: color-mix(in srgb, var(--bad-soft) 45%, var(--surface)); }
.finding code, .notes code { padding: 1px 5px; border-radius: 4px; background: var(--quiet-soft); }
.name.is-short { white-space: nowrap; }
.subject .name { color: var(--text); font-weight: 600; }
.what { margin-top: 6px; }
.advice { margin-top: 6px; }
.advice b { color: var(--accent); font-weight: 650; margin-right: 4px; }
.finding .evidence { margin-top: 10px; padding-top: 9px; border-top: 1px solid var(--line); }
.goals { display: flex; flex-wrap: wrap; gap: 8px; margin: 16px 0 4px; }
.goals li { display: inline-flex; align-items: center; gap: 9px; padding: 4px 6px 4px 12px;
  border: 1px solid var(--line);
  border-radius: 16px; font-size: 13px; }
.goal-name { color: var(--muted); }
.before-after { margin-top: 18px; }
.notes li { padding: 7px 0; border-top: 1px solid var(--line); }
.table-frame { overflow-x: auto; border: 1px solid var(--line); border-radius: 10px; }
.table { width: 100%; border-collapse: collapse; }
.table caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.table th { padding: 7px 12px; border-bottom: 1px solid var(--line); background: var(--sunken); color: var(--muted);
  font-size: 12.5px; font-weight: 600; text-align: left; white-space: nowrap; }
.table td { padding: 7px 12px; border-bottom: 1px solid var(--line); vertical-align: middle;
  overflow-wrap: break-word; }
.table td:is(.lead, .why) { overflow-wrap: anywhere; }
.table tbody tr:last-child td { border-bottom: 0; }
.table .number { font-variant-numeric: tabular-nums; text-align: right; white-space: nowrap; }
.table .lead { min-width: 130px; font-weight: 550; }
.table .why { min-width: 220px; }
.table .why small { margin-right: 4px; padding: 1px 7px; border-radius: 99px; background: var(--quiet-soft);
  font-size: 12px;
  white-space: nowrap; }
.table td small { white-space: nowrap; }
.table td .names small { display: inline; }
.table .number > small { display: block; }
.table .number > .meter { width: 100%; min-width: 90px; margin-top: 5px; }
.change b { font-weight: 650; } .change.is-same { color: var(--muted); }
b.is-bad, b.is-warn { color: var(--tone); }
@media (min-width: 1000px) {
  .way { white-space: nowrap; } .way .name:not(.is-short) { white-space: normal; }
}
.pair-cell { width: 42%; min-width: 160px; } .strip-cell { width: 74%; } .eta-cell, .span-cell { width: 24%;
  min-width: 120px; }
.meter-cell { min-width: 104px; }
.pair { width: 100%; height: 24px; } .strip { width: 100%; height: 22px; border-radius: 4px;
  shape-rendering: crispEdges; background: var(--sunken); }
.pair .track { fill: var(--grid); } .pair .before { fill: var(--before); } .pair .after { fill: var(--accent); }
.pair .mean { fill: var(--text); opacity: .55; }
.meter { width: 100%; height: 6px; border-radius: 3px; }
.meter .track { fill: var(--quiet-soft); } .meter .fill { fill: var(--fill); }
.gauge { display: block; } .gauge-text { display: block; margin-top: 2px; font-size: 12.5px; }
.gauge.is-bad .gauge-text { color: var(--bad); font-weight: 650; }
.gauge.is-warn .gauge-text { color: var(--warn); font-weight: 650; }
.eta { width: 100%; height: 16px; } .eta .track { fill: var(--line-strong); } .eta .band { fill: var(--fill);
  opacity: .3; }
.eta .fill { fill: var(--fill); }
.spans { width: 100%; height: 10px; border-radius: 3px; }
.spans .seen { fill: color-mix(in srgb, var(--good) 45%, var(--surface)); } .spans .hole { fill: var(--bad); }
.seen-share { max-width: 420px; margin-bottom: 16px; }
.seen-share b { font-size: 20px; } .seen-share .meter { margin-top: 5px; }
#coverage .table-frame, #coverage .empty { margin: 16px 0 10px; }
.files { margin: 6px 0 0; } .files li { font-size: 13px; }
.heat { margin-bottom: 22px; }
.heat-note { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 4px 16px; margin-bottom: 6px;
  color: var(--muted); font-size: 13px; }
.heat .table td { padding-top: 4px; padding-bottom: 4px; }
.shades { display: inline-flex; vertical-align: -1px; border-radius: 3px; overflow: hidden; }
.strip.is-share .h9, .shades.is-share .h9 { --heat: var(--warn-fill); }
.strip.is-share :is(.h10, .h11), .shades.is-share :is(.h10, .h11) { --heat: var(--bad); }
.shade { width: 14px; height: 11px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 26px 30px; }
.chart { min-width: 0; }
.chart figcaption { margin-bottom: 8px; color: var(--muted); font-size: 13px; font-weight: 600; }
.plot-frame { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 8px; }
.axis-y { display: flex; flex-direction: column; justify-content: space-between; height: 186px; margin: -8px 0;
  color: var(--muted); font-size: 11.5px; text-align: right; font-variant-numeric: tabular-nums; line-height: 16px;
  min-width: 46px; }
.plot { width: 100%; height: 170px; overflow: visible; }
.chart:last-child:nth-child(odd) { grid-column: 1 / -1; }
.plot .grid line { stroke: var(--grid); stroke-width: 1; }
.plot .stroke { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.plot .area { opacity: .1; }
.hover rect { fill: transparent; } .hover rect:hover { fill: var(--muted); opacity: .14; }
.axis-x { display: flex; justify-content: space-between; grid-column: 2;
  margin: -2px -16px 8px; color: var(--muted);
  font-size: 11.5px;
  font-variant-numeric: tabular-nums; }
.chart .table-frame { border: 0; border-radius: 0; }
.chart .table th { padding: 3px 8px; background: none; font-size: 11.5px; }
.chart .table td { padding: 3px 8px; font-size: 13px; }
.chart .table td:first-child { width: 50%; }
.chart .swatch { margin-right: 8px; }
.names li { font-size: 13px; }
details { margin-top: 14px; } summary { margin-bottom: 10px; color: var(--accent); cursor: pointer;
  font-weight: 550; }
"""

_COLOURS: Final = "\n".join(
    f".swatch.c{index} {{ background: var(--c{index}); }} .stroke.c{index} {{ stroke: var(--c{index}); }} "
    f".area.c{index} {{ fill: var(--c{index}); }}"
    for index in range(8)
) + "\n".join(
    f"\n.strip .h{step}, .shade.h{step} {{ --heat: color-mix(in srgb, var(--accent) {min(96, 7 + step * 9)}%, "
    "var(--surface)); fill: var(--heat); background: var(--heat); }"
    for step in range(12)
)

_PHONE: Final = """
@media screen and (max-width: 720px) {
  .top { padding: 12px 14px 10px; } .what-it-is { display: none; } main, footer { padding-left: 12px;
    padding-right: 12px; }
  .hero { flex-direction: column; align-items: stretch; gap: 18px; padding: 20px 18px; }
  .hero h1 { font-size: 21px; }
  .score { flex-direction: row; flex-wrap: wrap; gap: 4px 12px; } .dial-box { width: 64px; height: 64px; }
  .dial-box b { font-size: 21px; } .score-word, .score-then { margin: 0; }
  .tiles { grid-template-columns: 1fr 1fr; gap: 8px; } .tile { padding: 10px 12px; } .tile b { font-size: 19px; }
  .card { padding: 15px 14px 16px; } .side { margin-left: 0; width: 100%; } .finding { padding: 12px 13px; }
  .table-frame { overflow: visible; border: 0; }
  .table, .table tbody, .table tr, .table td { display: block; }
  .table thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  .table tbody tr { display: grid; grid-template-columns: repeat(6, 1fr); gap: 7px 12px; margin-bottom: 9px;
    padding: 11px 13px; border: 1px solid var(--line); border-radius: 10px; }
  .table td, .chart .table td, .heat .table td { grid-column: span 3; width: auto; min-width: 0; padding: 0;
    border: 0; }
  .table td::before { display: block; color: var(--muted); content: attr(data-label); font-size: 11.5px;
    font-weight: 450; }
  .table td.lead { grid-column: 1 / -1; order: -1; font-size: 15px; } .table td.lead::before { display: none; }
  .table td.number { grid-column: span 2; text-align: left; white-space: normal; }
  .table td.why, .table td.pair-cell, .table td.eta-cell, .table td.span-cell,
    .table td.strip-cell { grid-column: 1 / -1; min-width: 0; }
  .table td.pair-cell::before, .table td.strip-cell::before { display: none; }
  .heat .table tbody tr { grid-template-columns: 1fr auto; gap: 3px 10px; padding: 7px 0; border: 0; margin: 0; }
  .heat .table td.lead { grid-column: 1; font-size: 13px; } .heat .table td.number { grid-column: 2; grid-row: 1; }
  .heat .table td.number::before { display: none; } .heat .table td.strip-cell { grid-column: 1 / -1; }
  .chart .table tbody tr { grid-template-columns: 1fr repeat(4, auto); gap: 0 10px; padding: 6px 0; border: 0;
    margin: 0; }
  .chart .table td:first-child { grid-column: 1 / -1; } .chart .table td.number { grid-column: auto; }
  .chart .table td.number:nth-child(2) { grid-column: 2; } .chart .table td:first-child::before { display: none; }
  .evidence { gap: 7px 20px; }
}
"""

_PAPER: Final = """
@media print {
  @page { margin: 14mm 12mm; }
  html, body { background: #fff; font-size: 11px; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .top, main, footer { max-width: none; padding-left: 0; padding-right: 0; }
  main { display: block; } main > * { margin-bottom: 12px; }
  .contents, details:not([open]) { display: none; }
  .card, .tile { box-shadow: none; } .card { padding: 12px 14px; }
  .hero { padding: 16px 20px; } .hero h1 { font-size: 19px; }
  .tiles { grid-template-columns: repeat(4, 1fr); } .tile b { font-size: 17px; }
  .table td, .table th { padding: 3px 5px; } .table-frame { overflow: visible; }
  .table, .table td, .table th, .table small, .table .names li, .table .badge, .gauge-text, .chart .table td,
  .chart .table th, .evidence dt, .legend, .note, .axis-x, .axis-y { font-size: 9.5px; }
  .table th { white-space: normal; } .table .why small { padding: 0 4px; font-size: 9.5px; }
  .table .lead, .table .why, .meter-cell, .pair-cell, .eta-cell, .span-cell, .table .number > .meter { min-width: 0; }
  .table td.lead { overflow-wrap: anywhere; } .goals li { padding: 1px 4px 1px 9px; font-size: 10px; }
  .table tr, .finding, .chart, .tile, .hero { break-inside: avoid; } .card > header, h3 { break-after: avoid; }
  .table thead { display: table-header-group; }
  .charts { grid-template-columns: 1fr 1fr; gap: 14px 18px; }
  .hover { display: none; }
}
"""

STYLE: Final = "".join(
    (
        f":root {{ color-scheme: light dark; {_LIGHT} }}\n",
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n",
        _BASE, _FRAME, _CONTENT, _COLOURS, _PHONE, _PAPER,
    )
)  # fmt: skip
