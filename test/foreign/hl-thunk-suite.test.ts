/**
 * The C suite of hl-thunk on emulated cards, if GAUDI_HL_THUNK_DIR names a checkout of hl-thunk. The logic of its runner is tested on a small project with
 * the same options and output.
 */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TestNodeServer } from '../fixtures/processes/node-server.ts';
import { deviceNodesSkipReason, run } from '../fixtures/tools/run-command.ts';
import { HL_THUNK_EXCEPTIONS } from './hl-thunk-expected.ts';
import { buildSuite, type Launch, programsIn, runSuite } from './hl-thunk-suite.ts';

const CHECKOUT = process.env['GAUDI_HL_THUNK_DIR'];
const BUILD_MS = 600_000;
const SUITE_MS = 7_200_000;

const hasCmake = spawnSync('cmake', ['--version']).status === 0 && spawnSync('cc', ['--version']).status === 0;

/** What the suite lacks on this machine; undefined if nothing. */
function suiteSkipReason(): string | undefined {
  if (CHECKOUT === undefined) return 'GAUDI_HL_THUNK_DIR, the folder of a checkout of hl-thunk';
  if (!hasCmake) return 'cmake and cc';
  return deviceNodesSkipReason();
}

const reason = suiteSkipReason();
if (reason !== undefined) console.log(`the suite of hl-thunk is skipped: needs ${reason}`);

describe('the C suite of hl-thunk (needs GAUDI_HL_THUNK_DIR, cmake, cmocka and root)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-hl-thunk-'));
  let programs = '';
  beforeAll(() => {
    if (reason === undefined) programs = buildSuite(CHECKOUT!, folder);
  }, BUILD_MS);
  afterAll(() => rmSync(folder, { recursive: true }));

  it.skipIf(reason !== undefined).each(['gaudi', 'gaudi2'] as const)(
    'passes on %s, but for the exceptions',
    async (asic) => {
      const server = await TestNodeServer.start({ asic, cards: 2, strict: false });
      const launch: Launch = (command) => {
        const [status, out, errors] = run(['--socket', server.socketPath, '--', ...command]);
        return [status, out + errors];
      };
      const report = runSuite(programs, HL_THUNK_EXCEPTIONS, launch);
      const { passed, skipped, notRun, unexpected } = report;
      console.log(`${asic}: ${passed.length} passed, ${skipped.length} skipped, ${notRun.length} not run`);
      await server.stop();
      expect(unexpected).toEqual([]);
      expect(passed.length).toBeGreaterThan(0);
    },
    SUITE_MS,
  );
});

/** Prints a list for -l, and for -s what cmocka prints for a case: its name says the result. */
const PROGRAM = `
#include <signal.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
  if (!strcmp(argv[1], "-l")) {
    puts("\\nList of tests:\\n-----------------\\n\\ntest_good\\ntest_absent\\ntest_wrong\\ntest_null\\n");
    return 0;
  }
  puts("[==========] Running 1 test(s).");
  if (!strcmp(argv[2], "test_null")) raise(SIGSEGV);
  if (!strcmp(argv[2], "test_wrong")) puts("[  FAILED  ] test_wrong");
  else if (!strcmp(argv[2], "test_absent")) puts("[  SKIPPED ] test_absent");
  else puts("[  PASSED  ] 1 test(s).");
  return !strcmp(argv[2], "test_wrong");
}
`;
const PROJECT = `
cmake_minimum_required(VERSION 3.5)
project(suite LANGUAGES C)
set(CMAKE_C_FLAGS "-Wall -Werror")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "\${CMAKE_BINARY_DIR}/bin")
if (UNIT_TESTING)
  add_executable(memory suite.c)
endif ()
`;

describe.skipIf(!hasCmake)('the runner of the suite (needs cmake and cc)', () => {
  const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-suite-'));
  const checkout = join(folder, 'checkout');
  let programs = '';
  beforeAll(() => {
    mkdirSync(checkout);
    writeFileSync(join(checkout, 'CMakeLists.txt'), PROJECT);
    // An unused variable is a warning: a compiler that warns does not stop the build.
    writeFileSync(join(checkout, 'suite.c'), PROGRAM.replace('int main', 'static int unused;\nint main'));
    programs = buildSuite(checkout, join(folder, 'build'));
  }, BUILD_MS);
  afterAll(() => rmSync(folder, { recursive: true }));

  const started: string[] = [];
  const launch: Launch = ([file, ...args]) => {
    started.push(args.join(' '));
    const { status, stdout, stderr } = spawnSync(file!, args, { encoding: 'utf8' });
    return [status, stdout + stderr];
  };

  it('builds outside of the checkout, and finds the programs', () => {
    expect(readdirSync(checkout).sort()).toEqual(['CMakeLists.txt', 'suite.c']);
    expect(programsIn(programs)).toEqual(['memory']);
    expect(() => buildSuite(join(folder, 'nothing'), join(folder, 'other'))).toThrow(
      /cmake -S .*nothing.* failed: .*/s,
    );
  });

  it('reports each case that differs from what is expected', () => {
    const { passed, skipped, notRun, unexpected } = runSuite(programs, [], launch);
    expect([passed, skipped, notRun]).toEqual([['memory: test_good'], ['memory: test_absent'], []]);
    expect(unexpected.map((text) => text.split('\n')[0])).toEqual([
      'memory: test_wrong failed, expected: passed',
      'memory: test_null crashed, expected: passed',
    ]);
  });

  it('accepts exceptions, unless the case passes', () => {
    const exception = (name: RegExp, result: 'failed' | 'crashed' | 'not run') => ({
      program: /^memory$/,
      case: name,
      result,
      reason: 'for this test',
    });
    const known = [exception(/_wrong$/, 'failed'), exception(/_null$/, 'crashed')];
    expect(runSuite(programs, known, launch).unexpected).toEqual([]);
    const [text] = runSuite(programs, [...known, exception(/_good$/, 'failed')], launch).unexpected;
    expect(text).toMatch(/^memory: test_good passed, expected: failed\n/);
    started.length = 0;
    const { notRun, unexpected } = runSuite(programs, [exception(/./, 'not run')], launch);
    expect([notRun.length, unexpected, started]).toEqual([4, [], ['-l']]);
  });
});
