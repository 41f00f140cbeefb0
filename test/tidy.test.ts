/** The rules of scripts/tidy.ts hold in this repository, and each of them detects its violation. */

import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  checkErrorCodes,
  checkLinks,
  checkNames,
  checkSource,
  checkText,
  type Finding,
  tidy,
} from '../scripts/tidy.ts';

const ROOT = join(import.meta.dirname, '..');
const HEADER = '/** A file. Not another one. */\n\n';

function rulesOf(findings: readonly Finding[]): string[] {
  return findings.map(({ rule, line }) => `${rule}:${line}`);
}

function source(text: string, file = 'src/ucp/core/worker.ts'): string[] {
  return rulesOf(checkSource({ file, text }));
}

function text(line: string, file = 'src/ucp/core/worker.ts'): string[] {
  return rulesOf(checkText({ file, text: line }));
}

describe('the repository', () => {
  it('is tidy', { timeout: 60_000 }, () => {
    expect(tidy(ROOT).map(({ rule, file, line, what }) => `${file}:${line}: ${rule}: ${what}`)).toEqual([]);
  });
});

describe('checkText', () => {
  it('finds leftovers', () => {
    expect(text('// TODO: later')).toEqual(['leftover:1']);
    expect(text('ok\n// FIXME', 'docs/X.md')).toEqual(['leftover:2']);
    expect(text("const autodock = 'TODOS';")).toEqual([]);
  });

  it('finds traces of a machine', () => {
    expect(text('see /home/somebody/file')).toEqual(['machine-trace:1']);
    expect(text("'/root/.cache'")).toEqual(['machine-trace:1']);
    expect(text('"resolved": "x"', 'package-lock.json')).toEqual(['machine-trace:1']);
    expect(text('https://registry.example.com/x.tgz', 'README.md')).toEqual(['machine-trace:1']);
    expect(text('the /sys/class/work/root folder, the root/of/it, https://github.com/openucx/ucx')).toEqual([]);
  });

  it('finds words that name no process, peer or caller, in pages', () => {
    expect(text('Whoever has the key', 'docs/guide/threads.md')).toEqual(['vague-word:1']);
    expect(text('ok\nwhat nobody reads', 'README.md')).toEqual(['vague-word:2']);
    expect(text('somebody', 'docs/STYLE.md')).toEqual([]);
    expect(text('somebody', 'NEWS.md')).toEqual([]);
    expect(text('// somebody')).toEqual([]);
  });

  it('finds phrases that are not plain English, in every file', () => {
    expect(text('// tcp is no shared-memory transport')).toEqual(['odd-phrase:1']);
    expect(text('the worker is told\nWhat was posted', 'docs/X.md')).toEqual(['odd-phrase:1', 'odd-phrase:2']);
    expect(text('there is no device, and the node is no longer open; a textbook')).toEqual([]);
  });

  it('bounds the length of programs', () => {
    expect(text('x\n'.repeat(501))).toEqual(['file-length:500']);
    expect(text('x\n'.repeat(500))).toEqual([]);
    expect(text('x\n'.repeat(501), 'package-lock.json')).toEqual([]);
  });
});

describe('checkNames', () => {
  const names = new Set(['worker.ts']);
  const found = (text: string, file = 'src/ucp/core/worker.ts') => rulesOf(checkNames({ file, text }, names));

  it('finds files that do not exist, in comments and pages', () => {
    expect(found('// See gone.ts and worker.ts.')).toEqual(['named-file:1']);
    expect(found(' * in `ucp/core/gone.ts`', 'docs/ARCHITECTURE.md')).toEqual(['named-file:1']);
    expect(found("import { a } from './gone.ts'; // of worker.ts")).toEqual([]);
    expect(found('/** the `*-thread.ts` of a program */')).toEqual([]);
  });
});

describe('checkSource', () => {
  it('requires a header that belongs to the file', () => {
    expect(source(`${HEADER}export const a = 1;\n`)).toEqual([]);
    expect(source(`#!/usr/bin/env node\n${HEADER}export const a = 1;\n`)).toEqual([]);
    expect(source('export const a = 1;\n')).toEqual(['header:1']);
    expect(source('/** Of a. */\nexport const a = 1;\n')).toEqual(['header:1']);
  });

  it.each([
    "throw new Error('x');",
    'Date.now();',
    'const now = performance.now();',
    'process.hrtime.bigint();',
    'setTimeout(() => {}, 1);',
    'setInterval(() => {}, 1);',
    'Math.random();',
    'const { PATH } = process.env;',
    "console.log('x');",
  ])('bans %s', (statement) => {
    expect(source(`${HEADER}${statement}\n`)).toEqual([expect.stringMatching(/^(banned-call|bare-error):3$/)]);
  });

  it.each([
    '// console.log, Date.now() and process.env in a comment',
    "const text = 'Math.random()';",
    "throw new TypeError('x');",
    'clock.setTimer(1, () => {});',
    'const options = { setTimeout: 1 };',
    'it.setTimeout(1);',
  ])('lets %s pass', (statement) => {
    expect(source(`${HEADER}${statement}\n`)).toEqual([]);
  });

  it('permits the calls in the listed files', () => {
    expect(source(`${HEADER}Date.now();\n`, 'src/ucs/sys/clock.ts')).toEqual([]);
    expect(source(`${HEADER}Math.random();\n`, 'src/ucs/sys/random.ts')).toEqual([]);
    expect(source(`${HEADER}process.env;\n`, 'src/assembly/environment.ts')).toEqual([]);
    expect(source(`${HEADER}console.log(process.env);\n`, 'src/tools/info/info.ts')).toEqual([]);
    expect(source(`${HEADER}console.log(1);\n`, 'src/assembly/environment.ts')).toEqual(['banned-call:3']);
  });
});

describe('checkErrorCodes', () => {
  const table =
    '| Code | Status |\n|---|---|\n| `ERR_A` | X |\n| `ERR_B`, `ERR_C` | Y |\n| `ERR_SYSCALL_<errno>` | by errno |\n';
  const check = (code: string): string[] =>
    checkErrorCodes([{ file: 'src/a.ts', text: code }], table).map(({ file, what }) => `${file}: ${what}`);

  it('compares the sources with the table', () => {
    expect(check(`f('ERR_A', 'ERR_B', 'ERR_C', \`ERR_SYSCALL_\${name}\`);`)).toEqual([]);
    expect(check(`f('ERR_A', 'ERR_B', 'ERR_C', 'ERR_D', \`ERR_SYSCALL_\${name}\`);`)).toEqual([
      'src/a.ts: ERR_D has no row in docs/ERRORS.md',
    ]);
    expect(check(`f('ERR_A', 'ERR_B', \`ERR_SYSCALL_\${name}\`, \`ERR_OTHER_\${name}\`);`)).toEqual([
      'src/a.ts: ERR_OTHER_ has no row in docs/ERRORS.md',
      'docs/ERRORS.md: ERR_C occurs nowhere in src',
    ]);
  });

  it('ignores comments and names', () => {
    expect(check("// ERR_X\nconst ERR_Y = 'see ERR_Z'; f('ERR_A', 'ERR_B', 'ERR_C', 'ERR_SYSCALL_');")).toEqual([]);
  });
});

describe('checkLinks', () => {
  const check = (page: string): string[] =>
    checkLinks({ file: 'docs/PAGE.md', text: page }, ROOT).map(({ line, what }) => `${line}: ${what}`);

  it('follows relative links and anchors', () => {
    expect(
      check('[a](ARCHITECTURE.md) [b](../README.md) [c](ARCHITECTURE.md#the-layers) [d](https://example.com)'),
    ).toEqual([]);
    expect(check('x\n[a](MISSING.md) [b](ARCHITECTURE.md#no-such-heading)')).toEqual([
      '2: MISSING.md leads nowhere',
      '2: ARCHITECTURE.md#no-such-heading leads nowhere',
    ]);
    expect(check('```\n[a](MISSING.md)\n```')).toEqual([]);
  });
});
