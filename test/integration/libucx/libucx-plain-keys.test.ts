/** What a plain UCX program reads of packed remote keys of the engine libucx: it can tell those of memory that libucp does not reach. */

import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { MemoryType } from '../../../src/index.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { CompilerFolder, compilerSkipReason } from '../../fixtures/libucp/c-library.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { ROOT } from '../../fixtures/tools/built.ts';

const HEADER = '/usr/include/ucp/api/ucp.h';
const skipReason =
  installedLibucp().skipReason ??
  compilerSkipReason() ??
  (existsSync(HEADER) ? undefined : `no ${HEADER} (libucx-dev)`);

const folder = new CompilerFolder();
afterAll(() => folder[Symbol.dispose]());
const contexts = useContexts();

describe.skipIf(skipReason !== undefined)(`keys for plain UCX programs (${skipReason ?? 'UCX'})`, () => {
  it.each([
    ['host memory', MemoryType.HOST, 'Success, domains\n'],
    ['memory of a card', MemoryType.GAUDI, 'Success, no domains\n'],
  ])('of %s', async (_name, memoryType, printed) => {
    const program = folder.program('key-reader', readFileSync(join(ROOT, 'test/fixtures/key-reader.c'), 'utf8'), [
      '-lucp',
      '-lucs',
    ]);
    const { context, worker } = await contexts.open({
      context: { engine: 'libucx', features: ['rma', 'am'], env: {} },
    });
    const memory = context.memMap({ allocate: 65_536, memoryType });
    const [address, key] = [join(folder.path, 'address'), join(folder.path, 'key')];
    writeFileSync(address, worker.address());
    writeFileSync(key, context.packRkey(memory));
    const output = execFileSync('timeout', ['-s', 'KILL', '30', program, address, key], {
      encoding: 'utf8',
      env: { ...process.env, UCX_WARN_UNUSED_ENV_VARS: 'n' },
    });
    expect(output).toBe(printed);
  });
});
