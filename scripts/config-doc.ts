/**
 * The tables of docs/CONFIG.md, made from the configuration tables in the sources. `npx tsx scripts/config-doc.ts && npm run fix` rewrites the page;
 * test/docs.test.ts compares. The prose of the page is written by hand.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { AnyConfigTable } from '../src/ucs/config.ts';
import { textFiles } from './tidy.ts';

const ROOT = join(import.meta.dirname, '..');
export const CONFIG_PAGE: string = join(ROOT, 'docs/CONFIG.md');
const BEGIN = '<!-- variables: begin, made by scripts/config-doc.ts -->';
const END = '<!-- variables: end -->';

/** The page with its tables made anew. */
export async function configPage(): Promise<string> {
  const page = readFileSync(CONFIG_PAGE, 'utf8');
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`docs/CONFIG.md has no ${BEGIN} ... ${END}`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${await variableTables()}\n${page.slice(end)}`;
}

/** Every exported `*_CONFIG_TABLE` of src, tables within others left out, by file. */
async function variableTables(): Promise<string> {
  const tables: AnyConfigTable[] = [];
  for (const { file, text } of textFiles(ROOT)) {
    if (!file.startsWith('src/') || file.endsWith('.test.ts')) continue;
    for (const [, name] of text.matchAll(/^export const (\w+_CONFIG_TABLE)\b/gm)) {
      const module = (await import(pathToFileURL(join(ROOT, file)).href)) as Record<string, AnyConfigTable>;
      tables.push(module[name!]!);
    }
  }
  const inner = new Set(tables.flatMap((table) => table.subTables ?? []));
  return tables
    .filter((table) => !inner.has(table))
    .map(tableText)
    .join('\n');
}

function tableText(table: AnyConfigTable): string {
  const rows = rowsOf(table, '');
  return `| Variable | Default | Meaning |\n| --- | --- | --- |\n${rows.join('\n')}\n`;
}

function rowsOf(table: AnyConfigTable, outer: string): string[] {
  const prefix = table.prefix === '' ? outer : table.prefix;
  const own = table.fields.map((field) => {
    const aliases = (field.deprecatedAliases ?? []).map((name) => `\`${name}\``).join(', ');
    const note = aliases === '' ? '' : ` Deprecated: ${aliases}.`;
    return `| \`UCX_${prefix}${field.name}\` | \`${field.default}\` | ${field.doc.replaceAll('|', '\\|')}${note} |`;
  });
  return [...own, ...(table.subTables ?? []).flatMap((inner) => rowsOf(inner, prefix))];
}

if (process.argv[1] === import.meta.filename) writeFileSync(CONFIG_PAGE, await configPage());
