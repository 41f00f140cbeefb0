/** gaudi_ipc between real processes with one card each, on a node server: transfers, owners and importers that close or are killed. */

import { createHash } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { connectEmulatedNode, type RemoteNode } from '../../../src/emulator/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { scavenge } from '../../../src/uct/base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../src/uct/base/key/segment-name.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { PeerAnswer, PeerRequest } from '../../fixtures/programs/ipc-peer-program.ts';

const PROGRAM = join(import.meta.dirname, '../../fixtures/programs/ipc-peer-program.ts');
const BYTES = 3 * 2 ** 20 + 5;
const RELEASE_MS = 10_000;

let server: TestNodeServer;
let node: RemoteNode;
beforeAll(async () => {
  server = await TestNodeServer.start({ cards: 2 });
  node = connectEmulatedNode(server.socketPath);
});
afterAll(async () => {
  node.close();
  await server.stop();
});

type Peer = Child<PeerRequest, PeerAnswer>;

/** Starts a process with a card. */
async function startPeer(card: number): Promise<Peer> {
  const peer: Peer = new Child(PROGRAM, [server.socketPath, String(card)]);
  peers.push(peer);
  await peer.next();
  return peer;
}

/** Ends a process in order. */
async function close(peer: Peer): Promise<void> {
  await peer.ask({ do: 'close' });
  expect(await peer.end()).toBe(0);
}

const peers: Peer[] = [];
afterEach(async () => {
  for (const peer of peers.splice(0)) await peer.kill();
  scavenge();
  await vi.waitFor(
    () => {
      const { cards, dmabufs } = node.status();
      expect(cards.map(({ owner, dramUsedBytes }) => [owner, dramUsedBytes])).toEqual([
        [null, 0],
        [null, 0],
      ]);
      expect(dmabufs).toBe(0);
    },
    { timeout: RELEASE_MS, interval: 5 },
  );
});

async function owner(seed: number): Promise<{ there: Peer; key: readonly number[]; address: readonly number[] }> {
  const there = await startPeer(1);
  const { key, address } = await there.ask({ do: 'allocate', byteLength: BYTES, seed });
  return { there, key: key!, address: address! };
}

function digestOf(seed: number): string {
  const bytes = new Uint8Array(BYTES);
  fillPattern(bytes, seed);
  return createHash('sha256').update(bytes).digest('hex');
}

describe('processes with a card each', { timeout: 60_000 }, () => {
  it('read and write each other’s memory from device and host memory', async () => {
    const [here, { there, key, address }] = await Promise.all([startPeer(0), owner(1)]);
    expect(await here.ask({ do: 'check', address })).toEqual({ status: Status.OK });
    expect(await here.ask({ do: 'unpack', key })).toEqual({ status: Status.OK });
    let seed = 1;
    for (const from of ['host', 'device'] as const) {
      const got = await here.ask({ do: 'get', from, byteLength: BYTES, seed: 99 });
      expect(got).toEqual({ status: Status.OK, digest: digestOf(seed), imports: 1 });
      seed += 1;
      expect(await here.ask({ do: 'put', from, byteLength: BYTES, seed })).toMatchObject({ status: Status.OK });
      expect(await there.ask({ do: 'digest' })).toEqual({ digest: digestOf(seed) });
    }
    await there.ask({ do: 'free' });
    const refused = await here.ask({ do: 'put', from: 'host', byteLength: 8, seed: 1 });
    expect(refused).toMatchObject({ status: Status.INVALID_ADDR, code: 'ERR_RKEY_STALE' });
    expect(await here.ask({ do: 'unpack', key })).toEqual({ code: 'ERR_RKEY_STALE' });
    await Promise.all([close(here), close(there)]);
    expect(node.status().cards.map(({ hardResets }) => hardResets)).toEqual([0, 0]);
  });

  it('share with an owner that spins in progress', async () => {
    const [here, { there, key }] = await Promise.all([startPeer(0), owner(4)]);
    await there.ask({ do: 'spin' });
    await here.ask({ do: 'unpack', key });
    const got = await here.ask({ do: 'get', from: 'host', byteLength: BYTES, seed: 99 });
    expect(got).toMatchObject({ status: Status.OK, digest: digestOf(4) });
    // The card of a process that is killed while others have imported its memory is reset.
    await close(here);
    await there.kill();
  });

  it('leave no reset behind when the owner closes first', async () => {
    const [here, { there, key }] = await Promise.all([startPeer(0), owner(5)]);
    const before = node.status().cards.map(({ hardResets }) => hardResets);
    await here.ask({ do: 'unpack', key });
    expect(await here.ask({ do: 'get', from: 'host', byteLength: BYTES, seed: 9 })).toMatchObject({ imports: 1 });
    await close(there);
    expect(node.status().cards.map(({ hardResets }) => hardResets)).toEqual(before);
    const refused = await here.ask({ do: 'get', from: 'host', byteLength: 8, seed: 1 });
    expect(refused).toMatchObject({ status: Status.INVALID_ADDR, code: 'ERR_RKEY_STALE', imports: 0 });
    await close(here);
  });

  it('get ERR_GAUDI_IPC_OWNER_GONE when the owner was killed, before and after the first use', async () => {
    for (const used of [true, false]) {
      const [here, { there, key, address }] = await Promise.all([startPeer(0), owner(6)]);
      await here.ask({ do: 'unpack', key });
      if (used)
        expect(await here.ask({ do: 'get', from: 'host', byteLength: BYTES, seed: 9 })).toMatchObject({ status: 0 });
      await there.kill();
      expect(await here.ask({ do: 'put', from: 'host', byteLength: 8, seed: 1 })).toMatchObject({
        status: Status.ENDPOINT_TIMEOUT,
        code: 'ERR_GAUDI_IPC_OWNER_GONE',
        imports: 0,
      });
      expect((await here.ask({ do: 'check', address })).code).toMatch(/has ended/);
      await close(here);
      await vi.waitFor(() => expect(node.status().cards[1]).toMatchObject({ owner: null, status: 'operational' }), {
        timeout: RELEASE_MS,
      });
    }
  });

  it('lose no operation and no card when the owner is killed during transfers', async () => {
    for (const delayMs of [3, 17]) {
      const [here, { there, key }] = await Promise.all([startPeer(0), owner(6)]);
      await here.ask({ do: 'unpack', key });
      await here.ask({ do: 'stream' });
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      const ended = here.next();
      await there.kill();
      const { status, next, reason, digest, wrong } = (await ended) as PeerAnswer;
      expect(wrong).toEqual([]);
      expect([Status.ENDPOINT_TIMEOUT, Status.IO_ERROR]).toContain(status);
      expect([next, reason]).toEqual([Status.ENDPOINT_TIMEOUT, 'ERR_GAUDI_IPC_OWNER_GONE']);
      const bytes = new Uint8Array(65536);
      fillPattern(bytes, 5);
      expect(digest).toBe(createHash('sha256').update(bytes).digest('hex'));
      await close(here);
    }
  });

  it('lose nothing when an importer is killed during transfers', async () => {
    const { there, key } = await owner(7);
    for (const delayMs of [3, 17]) {
      const here = await startPeer(0);
      await here.ask({ do: 'unpack', key });
      await here.ask({ do: 'stream' });
      await new Promise((resolve) => setTimeout(resolve, delayMs));
      await here.kill();
      expect(await there.ask({ do: 'digest' })).toHaveProperty('digest');
      await vi.waitFor(() => expect(node.status().cards[0]).toMatchObject({ owner: null, status: 'operational' }), {
        timeout: RELEASE_MS,
      });
    }
    await close(there);
    expect(node.status().cards[1]).toMatchObject({ owner: null });
  });

  it('are not affected by importers that are killed', async () => {
    const { there, key } = await owner(7);
    for (let round = 0; round < 2; round++) {
      const here = await startPeer(0);
      await here.ask({ do: 'unpack', key });
      expect(await here.ask({ do: 'get', from: 'device', byteLength: BYTES, seed: 9 })).toMatchObject({ imports: 1 });
      await here.kill();
      expect(await there.ask({ do: 'digest' })).toEqual({ digest: digestOf(7) });
    }
    await close(there);
  });

  it('leave no files behind', async () => {
    const { there } = await owner(8);
    const filesOf = (): string[] => readdirSync(SEGMENT_FOLDER).filter((name) => name.split('.')[2] === `${there.pid}`);
    // The socket; the table of keys has no path.
    expect(filesOf()).toEqual([expect.stringMatching(/\.ipc$/)]);
    await there.kill();
    scavenge();
    expect(filesOf()).toEqual([]);
  });
});
