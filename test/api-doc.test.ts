/** Every public symbol of the package has a doc comment, from which typedoc generates the API reference. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { documentedEntries, entryProgram, undocumented } from '../scripts/api-doc.ts';
import { madeUpProgram } from './fixtures/programs/made-up-program.ts';
import { ROOT } from './fixtures/tools/built.ts';

describe('the API reference', { timeout: 120_000 }, () => {
  it('covers every entry of the package', () => {
    const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      exports: Record<string, string | { types: string }>;
    };
    const types = Object.values(exports).flatMap((entry) => (typeof entry === 'string' ? [] : [entry.types]));
    const names = types.map((file) => file.replace(/^\.\/dist\/types\/(.*)\.d\.ts$/, '$1'));
    const sources = documentedEntries(ROOT).map((file) => file.replace(/^src\/(.*?)(\/index)?\.ts$/, '$1'));
    expect(sources.sort()).toEqual(names.sort());
  });

  it('has a comment for every export of the entries and for its public members', () => {
    const program = entryProgram(ROOT);
    expect(program.getRootFileNames().filter((file) => program.getSourceFile(file) === undefined)).toEqual([]);
    expect(undocumented(program, ROOT).map(({ file, line, name }) => `${file}:${line}: ${name}`)).toEqual([]);
  });

  it('covers every kind of symbol', () => {
    const found = undocumented(
      madeUpProgram(`
        export function call(): void {}
        export const LIMIT = 1;
        export const CODES = {
          BARE: 1,
          /** Documented. */
          KNOWN: 2,
        } as const;
        export type Choice = 'a' | 'b';
        export type Variant = { readonly kind: 'one'; readonly bare: number } | { readonly kind: 'two' };
        /** Documented. */
        export interface Options {
          readonly bare: number;
          /** Documented. */
          readonly known: number;
          method(): void;
        }
        /** Documented. */
        export class Thing implements Options {
          readonly bare = 1;
          readonly known = 2;
          method(): void {}
          get own(): number { return this.#hidden; }
          #hidden = 1;
          private secret = 1;
          [Symbol.iterator](): void {}
        }
        /** */
        export function empty(): void {}
        class NotExported { bare = 1 }
      `),
      ROOT,
    );
    const names = found.map(({ name }) => name);
    expect(names).toEqual([
      'call',
      'LIMIT',
      'CODES',
      'CODES.BARE',
      'Choice',
      'Variant',
      'Variant.bare',
      'Options.bare',
      'Options.method',
      'Thing.bare',
      'Thing.method',
      'Thing.own',
      'empty',
    ]);
    expect(found[0]).toEqual({ name: 'call', file: 'src/made-up.ts', line: 2 });
  });
});
