/** Over the engine libucx, with its default transports: a plain UCX program of the same machine that never connects is read and written, and its end is detected. */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { type EndpointOptions, Status } from '../../../src/index.ts';
import { failureOf, useContexts } from '../../fixtures/contexts.ts';
import { CompilerFolder, compilerSkipReason } from '../../fixtures/libucp/c-library.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { ROOT } from '../../fixtures/tools/built.ts';

const HEADER = '/usr/include/ucp/api/ucp.h';
const skipReason =
  installedLibucp().skipReason ??
  compilerSkipReason() ??
  (existsSync(HEADER) ? undefined : `no ${HEADER} (libucx-dev)`);
const BYTES = 65_536;

const folder = new CompilerFolder();
afterAll(() => folder[Symbol.dispose]());
const contexts = useContexts();

/** Starts the program, and connects to it. */
async function connect(options: EndpointOptions = {}) {
  const program = folder.program('passive-peer', readFileSync(join(ROOT, 'test/fixtures/passive-peer.c'), 'utf8'), [
    '-lucp',
    '-lucs',
  ]);
  const published = new CompilerFolder();
  const peer = spawn('timeout', ['--foreground', '-s', 'KILL', '60', program, published.path], { stdio: 'inherit' });
  const ended = once(peer, 'exit');
  onTestFinished(async () => {
    peer.kill();
    await ended;
    published[Symbol.dispose]();
  });
  while (!existsSync(join(published.path, 'address'))) {
    expect(peer.exitCode).toBeNull();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const read = (name: string): Buffer => readFileSync(join(published.path, name));
  const { worker } = await contexts.open({ context: { engine: 'libucx', features: ['rma', 'am'], env: {} } });
  const endpoint = worker.endpoint(read('address'), { rawAddress: true, ...options });
  const raw = { address: read('base').readBigUInt64LE(), byteLength: 1 << 20 };
  return { peer, ended, endpoint, rkey: endpoint.unpackRkey(read('key'), { raw }) };
}

describe.skipIf(skipReason !== undefined)(`a plain UCX program that never connects (${skipReason ?? 'UCX'})`, () => {
  it.each<EndpointOptions>([{}, { errorHandling: 'peer' }, { errorHandling: 'none' }])(
    'is read and written, %o',
    async (options) => {
      const { endpoint, rkey } = await connect(options);
      const bytes = new Uint8Array(BYTES);
      await endpoint.get(bytes, rkey);
      expect(bytes).toEqual(Uint8Array.from({ length: BYTES }, (_, i) => i * 7 + 3));
      await endpoint.put(
        bytes.map((byte) => byte ^ 0xff),
        rkey,
        { remoteOffset: BYTES },
      );
      const back = new Uint8Array(BYTES);
      await endpoint.get(back, rkey, { remoteOffset: BYTES });
      expect(back).toEqual(bytes.map((byte) => byte ^ 0xff));
    },
    30_000,
  );

  it('fails its endpoint when it ends', async () => {
    const statuses: Status[] = [];
    const { peer, ended, endpoint, rkey } = await connect({ onError: (_endpoint, status) => statuses.push(status) });
    await endpoint.get(new Uint8Array(8), rkey);
    peer.kill();
    await ended;
    const message = failureOf(() => endpoint.amSend(1, new Uint8Array(1 << 20)));
    expect(await message).toMatchObject({ status: expect.toSatisfy(isLost) });
    expect(statuses).toEqual([expect.toSatisfy(isLost)]);
  }, 30_000);
});

function isLost(status: Status): boolean {
  return status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
}
