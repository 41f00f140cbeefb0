/**
 * Generates the table of promises in docs/guide/libucx.md from scripts/promises.ts. `npx tsx scripts/promises-doc.ts` rewrites the page;
 * test/quick/promises.test.ts compares.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type EnginePromise, GUIDE_PROMISES } from './promises.ts';

const PAGE: string = join(import.meta.dirname, '../docs/guide/libucx.md');
const BEGIN = '<!-- promises: begin, made by scripts/promises-doc.ts -->';
const END = '<!-- promises: end -->';

/** The page as it is, and with a new table. */
export function promisesPage(): { readonly page: string; readonly generated: string } {
  const page = readFileSync(PAGE, 'utf8');
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`docs/guide/libucx.md has no ${BEGIN} ... ${END}`);
  const rows = GUIDE_PROMISES.map(
    ({ guide, promise, native, libucx }) =>
      `| ${guide} | ${promise} | ${cellOf(native)} | ${libucx.test === native.test ? 'yes' : cellOf(libucx)} |`,
  );
  const table = ['| Guide | Statement of the guide | Native | Libucx |', '| --- | --- | --- | --- |', ...rows].join(
    '\n',
  );
  return { page, generated: `${page.slice(0, begin + BEGIN.length)}\n\n${table}\n\n${page.slice(end)}` };
}

function cellOf({ test, reason }: EnginePromise): string {
  return test === undefined ? `no: ${reason}` : `[yes](../../${test})`;
}

if (process.argv[1] === import.meta.filename) writeFileSync(PAGE, promisesPage().generated);
