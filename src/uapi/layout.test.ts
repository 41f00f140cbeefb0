import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  ALL_STRUCTS,
  compileLayout,
  HEADER_INCLUDE,
  type KernelHeader,
  type LayoutTable,
  ourLayout,
  skipReason,
} from '../../test/fixtures/uapi/compiled-layout.ts';

const HEADERS: readonly KernelHeader[] = ['6.1', '6.12'];

function golden(header: KernelHeader): LayoutTable {
  const file = new URL(`../../test/fixtures/uapi/layout-${header}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')) as LayoutTable;
}

describe.each(HEADERS)('layout of Linux %s, against the golden table', (header) => {
  it('agrees in every size and offset', () => {
    expect(ourLayout(header).structs).toEqual(golden(header).structs);
  });

  it('agrees in every request number', () => {
    expect(ourLayout(header).ioctls).toEqual(golden(header).ioctls);
  });

  it('agrees in every op, flag, enumerator and queue id', () => {
    expect(ourLayout(header).constants).toEqual(golden(header).constants);
  });
});

describe.each(HEADERS)('layout of Linux %s, against the compiler', (header) => {
  const reason = skipReason(header);
  if (reason !== undefined) console.info(`layout of ${HEADER_INCLUDE[header]} not compiled: ${reason}`);

  it.skipIf(reason !== undefined)(
    'agrees with the installed header in everything (needs cc and the kernel header)',
    { timeout: 60_000 },
    () => {
      const { table, fieldSizes } = compileLayout(header);
      expect(ourLayout(header)).toEqual(table);
      const ourSizes: Record<string, number> = {};
      for (const struct of ALL_STRUCTS) {
        for (const field of struct.layout) {
          const name = `${struct.cName}.${field.cPath}`;
          const isOfHeader = (only: string | undefined) => only === undefined || only === header;
          if (isOfHeader(struct.only) && isOfHeader(field.only)) ourSizes[name] = field.size;
        }
      }
      expect(ourSizes).toEqual(fieldSizes);
    },
  );

  it.skipIf(reason !== undefined)('knows every struct of the installed header (needs cc and the kernel header)', () => {
    const source = `#include <${HEADER_INCLUDE[header]}>\n`;
    const text = execFileSync('cc', ['-E', '-P', '-'], { input: source, encoding: 'utf8' });
    const declared = [...text.matchAll(/struct (hl_\w+) \{/g)].map((match) => match[1]);
    const known = Object.keys(ourLayout(header).structs);
    expect(declared.filter((name) => name !== undefined && !known.includes(name))).toEqual([]);
    expect(declared.length).toBeGreaterThan(30);
  });
});

describe('struct tables', () => {
  it('name every byte: the ABI has no implicit padding', () => {
    for (const struct of ALL_STRUCTS) {
      const covered = new Uint8Array(struct.size);
      for (const field of struct.layout) covered.fill(1, field.offset, field.offset + field.size);
      expect({ struct: struct.cName, hole: covered.indexOf(0) }).toEqual({ struct: struct.cName, hole: -1 });
    }
  });
});
