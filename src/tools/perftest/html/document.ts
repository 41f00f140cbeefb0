/** Document of HTML pages with measurements: frame, lists of facts, formats of numbers. Without scripts. */

import { escapeText } from './chart.ts';

const STYLE = `
:root { color-scheme: light dark; --text: #1b1f24; --muted: #59636e; --line: #d9dee3; --back: #ffffff; --note: #fff4d6; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ec; --muted: #9aa4ae; --line: #363c43; --back: #16191d; --note: #43370f; }
}
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; color: var(--muted); }
dd { margin: 0; color: var(--text); overflow-wrap: anywhere; }
.note { background: var(--note); border-radius: .4rem; padding: .5rem .8rem; }
.wide { overflow-x: auto; }
.chart { display: block; width: 100%; min-width: 44rem; height: auto; margin: 1rem 0; }
.chart text { fill: var(--muted); font-size: 14px; }
.chart .title { fill: var(--text); font-size: 16px; font-weight: 600; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; padding: 0; margin: 0; list-style: none; }
.sample { width: 2.25rem; height: 1rem; margin-right: .4rem; vertical-align: middle; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 1rem 0 .3rem; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th[scope=row] { font-weight: inherit; }
th:last-child, td:last-child { text-align: left; }
`;

/** A page without scripts and without anything from elsewhere. @param body HTML below the heading */
export function htmlDocument(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeText(title)}</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escapeText(title)}</h1>
${body}
</body>
</html>
`;
}

/** List of names and texts. */
export function factList(rows: readonly (readonly [string, string])[]): string {
  return `<dl>\n${rows.map(([name, text]) => `<dt>${name}</dt><dd>${escapeText(text)}</dd>`).join('\n')}\n</dl>`;
}

/** 8 B, 64 KiB, 4 MiB. */
export function printBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 2 ** 30],
    ['MiB', 2 ** 20],
    ['KiB', 2 ** 10],
  ] as const) {
    if (bytes >= size) return `${printNumber(bytes / size)} ${unit}`;
  }
  return `${bytes} B`;
}

/** Three figures, without an exponent. */
export function printNumber(value: number): string {
  return value >= 1000 ? Math.round(value).toLocaleString('en-US') : String(Number(value.toPrecision(3)));
}
