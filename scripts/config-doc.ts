/**
 * Generates the tables of docs/CONFIG.md from the configuration tables in the sources. `npx tsx scripts/config-doc.ts && npm run fix` rewrites the
 * page;
 * test/docs.test.ts compares. The prose of the page is written by hand.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CONFIG_TABLES } from '../src/assembly/program/config.ts';
import { type FieldUse, fieldUseOf } from '../src/libucx/c/field-use.ts';
import { UCX_VARIABLE_GROUPS, UCX_VARIABLES_VERSION } from '../src/libucx/c/ucx-variables.ts';
import { type AnyConfigTable, type ConfigEntry, loadConfig } from '../src/ucs/config/config.ts';

const ROOT = join(import.meta.dirname, '..');
export const CONFIG_PAGE: string = join(ROOT, 'docs/CONFIG.md');
const BEGIN = '<!-- variables: begin, made by scripts/config-doc.ts -->';
/** The column of the engine libucx. */
const USES: Readonly<Record<FieldUse, string>> = {
  read: 'yes',
  passed: 'passed to libucp',
  none: 'no effect',
  refused: 'refused',
};
const END = '<!-- variables: end -->';
const UCX_BEGIN = '<!-- variables of C UCX: begin, made by scripts/config-doc.ts -->';
const UCX_END = '<!-- variables of C UCX: end -->';

/** The page with new tables. */
export function configPage(): string {
  const page = readFileSync(CONFIG_PAGE, 'utf8');
  const begin = page.indexOf(BEGIN);
  const end = page.indexOf(END);
  if (begin < 0 || end < begin) throw new Error(`docs/CONFIG.md has no ${BEGIN} ... ${END}`);
  return `${page.slice(0, begin + BEGIN.length)}\n\n${CONFIG_TABLES.map(tableText).join('\n')}\n${withUcxVariables(page.slice(end))}`;
}

/** The rest of the page with a new table of the variables of C UCX that no field reads. */
function withUcxVariables(rest: string): string {
  const begin = rest.indexOf(UCX_BEGIN);
  const end = rest.indexOf(UCX_END);
  if (begin < 0 || end < begin) throw new Error(`docs/CONFIG.md has no ${UCX_BEGIN} ... ${UCX_END}`);
  const rows = UCX_VARIABLE_GROUPS.map(({ use, reason, harmless = [], names }) => {
    const values = harmless.filter((value) => value !== '').map((value) => `\`${value}\``);
    const unless = use === 'none' || values.length === 0 ? '' : `, unless the value is ${anyOf(values)}`;
    return `| ${use === 'none' ? 'no meaning' : 'refused'}${unless} | ${reason} | ${names.map((name) => `\`UCX_${name}\``).join(' ')} |`;
  });
  const table = [`| Use | Why | Variables of UCX ${UCX_VARIABLES_VERSION} |`, '| --- | --- | --- |', ...rows].join(
    '\n',
  );
  return `${rest.slice(0, begin + UCX_BEGIN.length)}\n\n${table}\n\n${rest.slice(end)}`;
}

function anyOf(values: readonly string[]): string {
  return values.length < 2 ? values.join('') : `${values.slice(0, -1).join(', ')} or ${values.at(-1)}`;
}

function tableText(table: AnyConfigTable): string {
  const rows = loadConfig([table]).entries.map(rowOf);
  return `| Variable | Default | Meaning | Engine libucx |\n| --- | --- | --- | --- |\n${rows.join('\n')}\n`;
}

function rowOf({ name, field, inherits }: ConfigEntry): string {
  const value = field.default === '' ? '(empty)' : `\`${field.default}\``;
  const meaning = field.doc.replaceAll('|', '\\|').replaceAll('<', '\\<');
  return `| \`${name}\` | ${value} | ${meaning}${note(
    'Also',
    field.aliases?.map((alias) => `UCX_${alias}`),
  )}${aliasNotes(field.deprecatedAliases)}${note('Inherits', inherits)} | ${USES[fieldUseOf(name.replace('UCX_', ''))!]} |`;
}

function aliasNotes(names: readonly string[] = []): string {
  const [documented, deprecated] = [true, false].map((is) => names.filter((name) => name.startsWith('UCT_') === is));
  return `${note('Also', documented)}${note('Deprecated', deprecated)}`;
}

function note(title: string, names: readonly string[] = []): string {
  return names.length === 0 ? '' : ` ${title}: ${names.map((name) => `\`${name}\``).join(', ')}.`;
}

if (process.argv[1] === import.meta.filename) writeFileSync(CONFIG_PAGE, configPage());
