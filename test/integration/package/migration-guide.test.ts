/** The tables of docs/guide/migration.md: every function of UCX is in them, and what they name exists. */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { publicMembers } from '../../fixtures/calls/public-calls.ts';
import { functionsOfHeader, HEADERS_VERSION, UCX_FUNCTIONS } from '../../fixtures/libucp/ucx-functions.ts';
import { ROOT } from '../../fixtures/tools/built.ts';

const INCLUDE = '/usr/include';

/** A row of a table: names of C, names of this package, and the rest. */
interface Row {
  readonly c: readonly string[];
  readonly here: string;
  readonly toKnow: string;
}

const page = readFileSync(join(ROOT, 'docs/guide/migration.md'), 'utf8');

/** The texts in code spans of a cell. */
function spansOf(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, text]) => text!);
}

/** The rows of the table below a heading of a page. */
function rowsBelow(markdown: string, heading: string): Row[] {
  const [, section] = markdown.split(`\n## ${heading}\n`);
  const lines = section!.split('\n## ')[0]!.split('\n');
  return lines
    .filter((line) => line.startsWith('|'))
    .slice(2)
    .map((line) => {
      const [, c, here, toKnow] = line.split('|').map((cell) => cell.trim());
      return { c: spansOf(c!), here: here!, toKnow: toKnow! };
    });
}

/** Words in code spans that are values, not names of this package. */
const VALUES = ['add', 'and', 'or', 'xor', 'swap', 'cswap', 'libucx', 'none', 'peer'];

/**
 * The names in rows that no entry exports, or that are no members of their export; a member may stand alone beside the table's names.
 * @param isHereNames whether the column "Here" consists of names
 */
function unknownNames(rows: readonly Row[], entry: string, isHereNames = true): string[] {
  const exported = publicMembers(entry);
  const members = new Set([...exported.values()].flatMap((each) => [...each]));
  const isNamed = (name: string): boolean => {
    const [owner, member, ...rest] = name.split('.');
    const own = exported.get(owner!);
    return rest.length === 0 && own !== undefined && (member === undefined || own.has(member));
  };
  const named = isHereNames ? rows.flatMap(({ here }) => spansOf(here)) : [];
  const beside = rows
    .flatMap(({ toKnow }) => spansOf(toKnow))
    .map((text) => text.replace(/(\(\)|: .*)$/, ''))
    .filter((text) => !VALUES.includes(text));
  return [
    ...named.filter((name) => !isNamed(name)),
    ...beside.filter((name) => /^[A-Z]\w*[a-z]\w*(\.\w+)?$/.test(name) && !isNamed(name)),
    ...beside.filter((name) => /^[a-z][A-Za-z]*$/.test(name) && !members.has(name) && !exported.has(name)),
  ];
}

/** Rows that neither name something of this package nor say why nothing takes the place of the call. */
function emptyRows(rows: readonly Row[]): Row[] {
  return rows.filter(({ here, toKnow }) => (here === 'absent' ? toKnow === '' : spansOf(here).length === 0));
}

describe.each([
  ['UCP', 'src/index.ts', ['ucp/api/ucp.h', 'ucp/api/ucp_compat.h']],
  ['UCT', 'src/uct.ts', ['uct/api/uct.h']],
  ['Calls of the documents on Gaudi support', 'src/hlthunk.ts', []],
] as const)('the table of %s', { timeout: 120_000 }, (heading, entry, headers) => {
  const rows = rowsBelow(page, heading);

  it('has each function once, all those of the headers', () => {
    const names = rows.flatMap(({ c }) => c).sort();
    expect(names).toEqual(
      headers.length === 0 ? [...new Set(names)] : headers.flatMap((header) => UCX_FUNCTIONS[header]!).sort(),
    );
    expect(names.length).toBeGreaterThan(5);
  });

  it('names what the package exports, or why there is nothing', () => {
    expect(unknownNames(rows, entry)).toEqual([]);
    expect(emptyRows(rows)).toEqual([]);
  });
});

describe('the table of differences', { timeout: 120_000 }, () => {
  it('names what the package exports', () => {
    // Its columns are the subject, C, and this package.
    expect(unknownNames(rowsBelow(page, 'What is different'), 'src/index.ts', false)).toEqual([]);
  });
});

describe('the check', { timeout: 120_000 }, () => {
  it('finds false names and rows without a reason', () => {
    const table = [
      '',
      '## X',
      '',
      '| C | Here | To know |',
      '| --- | --- | --- |',
      '| `a`, `b` | `Worker.progres`, `Worker.wait`, `Nothing` | `Config.reed`, `UCX_TLS`, `progres()`, `peer` |',
      '| `c` | absent | |',
      '| `d` | nothing | because |',
      '',
      '## Y',
    ].join('\n');
    const rows = rowsBelow(table, 'X');
    expect(rows.map(({ c }) => c)).toEqual([['a', 'b'], ['c'], ['d']]);
    expect(unknownNames(rows, 'src/index.ts')).toEqual(['Worker.progres', 'Nothing', 'Config.reed', 'progres']);
    expect(emptyRows(rows)).toEqual(rows.slice(1));
  });
});

describe('the functions of UCX', () => {
  const version = join(INCLUDE, 'ucp/api/ucp_version.h');
  const text = existsSync(version) ? readFileSync(version, 'utf8') : '';
  const [major, minor] = ['MAJOR', 'MINOR'].map((part) =>
    Number(new RegExp(`UCP_API_${part} +(\\d+)`).exec(text)?.[1]),
  );
  const isSame = major === HEADERS_VERSION.major && minor === HEADERS_VERSION.minor;

  it.skipIf(!isSame).each(Object.keys(UCX_FUNCTIONS))('are those of %s (needs the headers of UCX 1.13)', (header) => {
    expect(functionsOfHeader(readFileSync(join(INCLUDE, header), 'utf8'))).toEqual(UCX_FUNCTIONS[header]);
  });

  it('are found in declarations and inline definitions, not in types, macros and comments', () => {
    const header = `
/* void ucp_comment(void); */
#define UCP_MACRO(_x) \\
    ucp_macro(_x)
typedef void (*ucp_callback_t)(int a, void (*ucp_inner)(int));
struct ucp_thing { int (*ucp_field)(int); };
static inline int uct_inline(int a)
{
    return uct_called(a);
}
ucs_status_ptr_t
ucp_declared(ucp_ep_h ep);
`;
    expect(functionsOfHeader(header)).toEqual(['uct_inline', 'ucp_declared']);
  });
});
