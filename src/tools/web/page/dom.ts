/** Elements of the page: finds, creates and updates them. Unchanged elements are not touched, so that selections are kept. */

import { STRIP, type Strips } from './data/arena-strips.ts';
import type { Cell } from './data/tables.ts';

const SVG = 'http://www.w3.org/2000/svg';

/** The element with an id of index.html. */
export function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** An element of SVG. */
export function svgElement<K extends keyof SVGElementTagNameMap>(
  name: K,
  attributes: Readonly<Record<string, string | number>>,
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

/** Sets text if it differs. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute if it differs. */
export function setAttribute(element: Element, name: string, value: string): void {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Shows rows in a table, reusing existing elements. The first row is the head. */
export function showTable(table: HTMLTableElement, caption: string, rows: readonly (readonly Cell[])[]): void {
  table.caption ??= table.createCaption();
  setText(table.caption, caption);
  const head = table.tHead ?? table.createTHead();
  const body = table.tBodies[0] ?? table.createTBody();
  const [first = [], ...rest] = rows;
  const heads = first.map(({ text }) => text);
  showRows(head, [first.map((cell) => ({ ...cell, isHead: true }))], { scope: 'col', heads: [] });
  showRows(body, rest, { scope: 'row', heads });
}

/** @param heads column titles, which a narrow window shows next to each value */
function showRows(
  section: HTMLTableSectionElement,
  rows: readonly (readonly Cell[])[],
  { scope, heads }: { readonly scope: string; readonly heads: readonly string[] },
): void {
  while (section.rows.length > rows.length) section.deleteRow(-1);
  for (const [index, cells] of rows.entries()) {
    const row = section.rows[index] ?? section.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    for (const [column, { text, kind = '', title = '', isHead = false }] of cells.entries()) {
      let cell = row.cells[column];
      if (cell === undefined) {
        cell = document.createElement(isHead ? 'th' : 'td');
        if (isHead) cell.scope = scope;
        row.append(cell);
      }
      setText(cell, text);
      setAttribute(cell, 'class', kind);
      setAttribute(cell, 'title', title);
      if (heads[column] !== undefined) setAttribute(cell, 'data-head', heads[column]);
    }
  }
}

/** Strips below one another, each with its label and its size, above their scale. Existing elements are reused. */
export class StripList {
  readonly #parent: Element;
  readonly #scale: HTMLElement;
  readonly #marks: readonly Element[] = [0, 1, 2].map(() => document.createElement('span'));
  readonly #rows: StripRow[] = [];

  constructor(parent: Element) {
    this.#parent = parent;
    this.#scale = document.createElement('p');
    this.#scale.className = 'scale';
    this.#scale.append(...this.#marks);
    parent.append(this.#scale);
  }

  show({ strips, ticks }: Strips): void {
    while (this.#rows.length > strips.length) this.#rows.pop()?.row.remove();
    for (const [index, { label, used, borders, size, text }] of strips.entries()) {
      const shapes = this.#rows[index] ?? this.#add();
      setText(shapes.label, label);
      setText(shapes.size, size);
      setAttribute(shapes.drawing, 'aria-label', text);
      setAttribute(shapes.used, 'd', used);
      setAttribute(shapes.borders, 'd', borders);
    }
    for (const [index, mark] of this.#marks.entries()) setText(mark, ticks[index] ?? '');
  }

  #add(): StripRow {
    const viewBox = `0 0 ${STRIP.width} ${STRIP.height}`;
    const shapes = {
      row: document.createElement('div'),
      label: document.createElement('span'),
      drawing: svgElement('svg', { viewBox, preserveAspectRatio: 'none', role: 'img' }),
      used: svgElement('path', { class: 'used' }),
      borders: svgElement('path', { class: 'border' }),
      size: document.createElement('span'),
    };
    shapes.size.className = 'size';
    shapes.drawing.append(shapes.used, shapes.borders);
    shapes.row.append(shapes.label, shapes.drawing, shapes.size);
    this.#parent.insertBefore(shapes.row, this.#scale);
    this.#rows.push(shapes);
    return shapes;
  }
}

interface StripRow {
  readonly row: Element;
  readonly label: Element;
  readonly drawing: Element;
  readonly used: Element;
  readonly borders: Element;
  readonly size: Element;
}
