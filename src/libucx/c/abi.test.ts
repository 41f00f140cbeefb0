import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { CompilerFolder, compilerSkipReason } from '../../../test/fixtures/libucp/c-library.ts';
import * as abi from './abi.ts';

/** The newest version that the table covers. */
const NEWEST_MINOR = 23;

type AnyStruct = abi.AbiStruct<Readonly<Record<string, number>>>;

const exported: readonly (readonly [string, unknown])[] = Object.entries(abi);
const structs = exported.map(([, value]) => value).filter(isStruct);

function isStruct(value: unknown): value is AnyStruct {
  return typeof value === 'object' && value !== null && 'cName' in value;
}

/** The constants of abi.ts by their names in C. */
function constants(): Record<string, number> {
  const all: Record<string, number> = { UCP_ENTITY_NAME_MAX: abi.UCP_ENTITY_NAME_MAX };
  for (const [name, value] of exported) {
    if (typeof value !== 'object' || value === null || isStruct(value) || value === abi.SINCE_MINOR) continue;
    for (const [member, number] of Object.entries(value as Record<string, number>)) all[`${name}_${member}`] = number;
  }
  return all;
}

/** First version with a struct, a constant, or a member of a struct, given by its path. */
function since(...names: readonly string[]): number {
  return Math.max(0, ...names.map((name) => (abi.SINCE_MINOR as Readonly<Record<string, number>>)[name] ?? 0));
}

/** Every size, offset and constant by its expression in C. */
function expressions(minor: number): Record<string, number> {
  const all: Record<string, number> = {};
  for (const [name, value] of Object.entries(constants())) if (minor >= since(name)) all[name] = value;
  for (const { cName, at } of structs) {
    for (const [member, offset] of Object.entries(at)) {
      const name = `${cName}.${member.split('.')[0]}`;
      if (minor >= since(cName, name)) all[`offsetof(${cName}, ${member})`] = offset;
    }
  }
  return all;
}

/** The values that a compiler computes for expressions. */
function compiled(list: readonly string[]): Record<string, number> {
  using folder = new CompilerFolder();
  const lines = list.map((expression) => `printf("%s = %lld\\n", "${expression}", (long long)(${expression}));`);
  const source = ['#include <stdio.h>', '#include <stddef.h>', '#include <ucp/api/ucp.h>', 'int main(void) {']
    .concat(lines, 'return 0; }')
    .join('\n');
  const pairs = folder.output(source).trim().split('\n');
  return Object.fromEntries(pairs.map((line) => line.split(' = ')).map(([name, value]) => [name, Number(value)]));
}

function skipReason(): string | undefined {
  const reason = compilerSkipReason();
  if (reason !== undefined) return reason;
  const folders = (process.env['CPATH'] ?? '').split(':').concat('/usr/include', '/usr/local/include');
  return folders.some((path) => existsSync(`${path}/ucp/api/ucp.h`)) ? undefined : 'no ucp/api/ucp.h (libucx-dev)';
}

const reason = skipReason();
if (reason !== undefined) console.info(`the interface of libucp not compiled: ${reason}`);

describe('the interface of libucp', () => {
  it.skipIf(reason !== undefined)('is that of the installed header (needs cc and libucx-dev)', () => {
    const version = compiled(['UCP_API_MAJOR', 'UCP_API_MINOR', 'sizeof(ucs_status_t)']);
    const minor = version['UCP_API_MINOR'] ?? 0;
    expect(version).toEqual({ UCP_API_MAJOR: abi.UCP_API_MAJOR, UCP_API_MINOR: minor, 'sizeof(ucs_status_t)': 1 });
    expect(minor).toBeGreaterThanOrEqual(abi.UCP_API_MINOR);
    const ours = expressions(minor);
    expect(Object.keys(ours).length).toBeGreaterThan(200);
    expect(ours).toEqual(compiled(Object.keys(ours)));
  });

  it.skipIf(reason !== undefined)('has room for the structs of the installed header (needs cc and libucx-dev)', () => {
    const minor = compiled(['UCP_API_MINOR'])['UCP_API_MINOR'] ?? 0;
    const known = structs.filter(({ cName }) => minor >= since(cName));
    const sizes = compiled(known.map(({ cName }) => `sizeof(${cName})`));
    for (const { cName, size } of known) {
      const theirs = sizes[`sizeof(${cName})`] ?? 0;
      if (minor === NEWEST_MINOR) expect([cName, size]).toEqual([cName, theirs]);
      else if (minor < NEWEST_MINOR) expect(size, cName).toBeGreaterThanOrEqual(theirs);
    }
    expect(known.length).toBeGreaterThan(15);
  });

  it('returns the members of every version', () => {
    const names = new Set([
      ...Object.keys(constants()),
      ...structs.map(({ cName }) => cName),
      ...structs.flatMap(({ cName, at }) => Object.keys(at).map((member) => `${cName}.${member.split('.')[0]}`)),
    ]);
    expect(Object.keys(abi.SINCE_MINOR).filter((name) => !names.has(name))).toEqual([]);
  });

  it('makes datatypes', () => {
    expect([abi.ucpDtMakeContig(1), abi.ucpDtMakeContig(8), abi.ucpDtMakeContig(2 ** 32)]).toEqual([8, 64, 2 ** 35]);
  });
});
