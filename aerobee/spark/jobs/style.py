"""The style sheet of the report, without external fonts or pictures."""

from __future__ import annotations

STYLE = """
:root {
  --paper: #fbfaf7; --card: #ffffff; --ink: #1d2129; --soft: #667085; --edge: #e6e3dc;
  --accent: #b45309; --bad: #c0392b; --good: #2e7d4f;
  --c0: #2f6fde; --c1: #d9820f; --c2: #138a6b; --c3: #7a52d6; --c4: #c9388a; --rest: #98a2b3;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12151b; --card: #1a1f28; --ink: #e8eaee; --soft: #97a1b3; --edge: #2b323e;
    --accent: #f5b544; --bad: #f2776a; --good: #6fcf97;
    --c0: #6aa3ff; --c1: #f5b544; --c2: #45c9a2; --c3: #a98bf5; --c4: #f07ab9; --rest: #667085;
    }
}
@media print {
  :root { --paper: #ffffff; --card: #ffffff; --ink: #111111; --soft: #555555; --edge: #dddddd; }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
main { max-width: 1240px; margin: 0 auto; padding: 40px 24px 32px; }
header { border-top: 4px solid var(--accent); padding-top: 18px; margin-bottom: 26px; }
h1 { margin: 0; font-size: 30px; line-height: 1.15; font-weight: 680; letter-spacing: -0.02em; }
h2 { margin: 0; font-size: 17px; font-weight: 640; letter-spacing: -0.01em; }
header p, section > p, footer { color: var(--soft); }
header p { margin: 6px 0 0; overflow-wrap: anywhere; }
section > p { margin: 2px 0 12px; font-size: 13px; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 1px;
  background: var(--card); border: 1px solid var(--edge); border-radius: 12px; overflow: hidden;
  margin-bottom: 22px;
}
.tile { box-shadow: 0 0 0 1px var(--edge); padding: 14px 18px 12px; }
.tile span, .tile small { display: block; color: var(--soft); font-size: 12.5px; }
.tile b { display: block; white-space: nowrap; font-size: 26px; line-height: 1.25; font-weight: 640;
  letter-spacing: -0.02em; }
.sections { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 20px; }
section {
  background: var(--card); border: 1px solid var(--edge); border-radius: 12px;
  padding: 18px 20px 14px; min-width: 0; break-inside: avoid;
}
section.wide { grid-column: 1 / -1; }
@media (max-width: 860px) { .sections { grid-template-columns: minmax(0, 1fr); } }
svg { display: block; width: 100%; height: auto; }
.empty { padding: 18px 0; color: var(--soft); }
.empty.good { color: var(--good); }
.note { color: var(--soft); font-size: 13px; }
details { margin-top: 10px; font-size: 13px; }
summary { color: var(--soft); cursor: pointer; }
.scroll { overflow: auto; max-height: 360px; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--edge);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; position: sticky; top: 0; background: var(--card); }
td.number { text-align: right; }
footer { margin-top: 26px; font-size: 12.5px; }
"""
"""There are two sets of colours, which can be told apart without red and green."""
