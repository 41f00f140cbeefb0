/** Every configuration variable is read, is registered, and conforms to its type. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, it } from 'vitest';
import { declaredTables, repositoryProgram } from '../scripts/config-fields.ts';
import { textFiles } from '../scripts/tidy.ts';
import type { AnyConfigTable } from '../src/ucs/config/config.ts';
import { madeUpProgram } from './fixtures/programs/made-up-program.ts';
import { built, ROOT } from './fixtures/tools/built.ts';

/** The exports of a module of the sources, from the output of the compiler: the same for every import. */
async function exportsOf<T>(module: string): Promise<T> {
  return (await import(pathToFileURL(built(join(ROOT, module))).href)) as T;
}

/** A table and its sub-tables. */
function nested(table: AnyConfigTable): AnyConfigTable[] {
  return [table, ...(table.subTables ?? []).flatMap(nested)];
}

describe('the fields of the configuration', { timeout: 120_000 }, () => {
  const tables = declaredTables(repositoryProgram(ROOT), ROOT);

  it('are all read', () => {
    expect(tables.flatMap(({ name, unread }) => unread.map((field) => `${name}: ${field}`))).toEqual([]);
  });

  it('are those of the types of the tables, and the tables are registered', async () => {
    const { CONFIG_TABLES } = await exportsOf<{ CONFIG_TABLES: readonly AnyConfigTable[] }>(
      'src/assembly/program/config.ts',
    );
    expect(tables.length).toBeGreaterThanOrEqual(CONFIG_TABLES.length);
    const registered = new Set(CONFIG_TABLES.flatMap(nested));
    for (const { name, file, fields } of tables) {
      const module = await exportsOf<Record<string, AnyConfigTable>>(file);
      const table = module[name]!;
      const names = nested(table).flatMap((each) => each.fields.map((field) => field.name));
      expect(names.sort(), name).toEqual([...fields].sort());
      expect(registered.has(table), `${name} is in CONFIG_TABLES`).toBe(true);
    }
  });
});

describe('variables that are read by their own names', () => {
  it('are those of docs/CONFIG.md', () => {
    const read = textFiles(ROOT)
      .filter(({ file }) => /^src\/.*(?<!\.test)\.ts$/.test(file))
      .flatMap(({ text }) => [...text.matchAll(/\benv(?:\.|\[['"])([A-Z][A-Z0-9_]*)/g)].map(([, name]) => name));
    const [, section] = readFileSync(join(ROOT, 'docs/CONFIG.md'), 'utf8').split('## Read by their own names');
    const documented = [...section!.matchAll(/^\| `([A-Z_]+)`/gm)].map(([, name]) => name);
    expect([...new Set(read)].sort()).toEqual(documented.sort());
  });
});

describe('declaredTables', () => {
  it('finds the readers of a field by its type', () => {
    const [one, two, ...others] = declaredTables(
      madeUpProgram(`
        import type { ConfigTable } from './ucs/config/config.ts';
        interface One { readonly TAKEN: number; readonly SPREAD: number; readonly PASSED: number; readonly LOST: number }
        interface Two { readonly TAKEN: number; readonly LOST: number }
        export const ONE_CONFIG_TABLE: ConfigTable<One> = { prefix: '', fields: [] };
        export const TWO_CONFIG_TABLE: ConfigTable<Two> = { prefix: '', fields: [] };
        export function one(values: Readonly<One>): number { const { SPREAD } = values; return values.TAKEN + SPREAD; }
        export function parameter({ PASSED: renamed }: Pick<One, 'PASSED'>): number { return renamed; }
        export const LOST = { LOST: 1 }.LOST;
      `),
      ROOT,
    ).filter(({ file }) => file === 'src/made-up.ts');
    expect(one).toMatchObject({ name: 'ONE_CONFIG_TABLE', unread: ['LOST'] });
    expect(two).toMatchObject({ name: 'TWO_CONFIG_TABLE', fields: ['TAKEN', 'LOST'], unread: ['TAKEN', 'LOST'] });
    expect(others).toEqual([]);
  });
});
