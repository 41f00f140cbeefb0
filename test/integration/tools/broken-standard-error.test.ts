/** Standard error of a program that is broken or full: what the library logs is lost, and the program lives on. */

import { mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { connectEmulatedNode } from '../../../src/emulator/index.ts';
import type { EngineName } from '../../../src/index.ts';
import { close as closeFd, pipe2 } from '../../../src/sys/index.ts';
import { RawNodeClient } from '../../fixtures/driver/raw-node-client.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { Child } from '../../fixtures/processes/child.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/noisy-program.ts');
const SERVER = join(import.meta.dirname, '../../fixtures/programs/node-server-program.ts');
const { skipReason } = installedLibucp();
const ENGINES: readonly EngineName[] = skipReason === undefined ? ['native', 'libucx'] : ['native'];
if (skipReason !== undefined) console.log(`engine libucx is skipped: ${skipReason}`);

/** Opens a descriptor for standard error that takes no byte. */
function openBroken(kind: 'full' | 'broken'): number {
  if (kind === 'full') return openSync('/dev/full', 'w');
  const [reader, writer] = pipe2();
  closeFd(reader);
  return writer;
}

describe.each(['full', 'broken'] as const)('standard error that is %s', { timeout: 30_000 }, (kind) => {
  it.each(ENGINES)('does not end a program with engine %s, which logs again and again', async (engine) => {
    const log = openBroken(kind);
    const child = new Child<{ readonly do: 'warn' | 'close' }, object>(PROGRAM, [engine], { log });
    closeFd(log);
    await child.next();
    for (let i = 0; i < 3; i++) expect(await child.ask({ do: 'warn' })).toEqual({});
    await child.ask({ do: 'close' });
    expect(await child.end()).toBe(0);
  });

  it('does not end a node server, which logs violations of the protocol', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gaudi-ucx-broken-'));
    const socketPath = join(folder, 'node.sock');
    const log = openBroken(kind);
    const child = new Child<{ readonly do: 'close' }, object>(SERVER, [JSON.stringify({ socketPath })], { log });
    closeFd(log);
    await child.next();
    for (let i = 0; i < 3; i++) {
      using client = new RawNodeClient(socketPath);
      client.sendBytes(Buffer.from('nonsense'));
      await client.hungUp();
    }
    const node = connectEmulatedNode(socketPath);
    expect(node.status().clients).toHaveLength(1);
    node.close();
    await child.ask({ do: 'close' });
    expect(await child.end()).toBe(0);
    rmSync(folder, { recursive: true });
  });
});
