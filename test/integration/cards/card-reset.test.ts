/**
 * A card that is reset while contexts have it open: every use of its memory fails with the reason, until the context is closed and opened again. Both engines
 * and generations, on a node in this process and on a node server; memory of the card that peers use, and that was exported.
 */

import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  connectEmulatedNode,
  createEmulatedNode,
  type EmulatedNode,
  type RemoteNode,
} from '../../../src/emulator/index.ts';
import { Context, type EngineName, MemoryType, Status } from '../../../src/index.ts';
import type { AsicName } from '../../../src/uapi/index.ts';
import { device, failureOf, rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { pattern } from '../../fixtures/pattern.ts';
import { Child } from '../../fixtures/processes/child.ts';
import { TestNodeServer } from '../../fixtures/processes/node-server.ts';
import type { PeerAnswer, PeerRequest } from '../../fixtures/programs/ipc-peer-program.ts';

const { skipReason } = installedLibucp();
const ENGINES: readonly EngineName[] = skipReason === undefined ? ['native', 'libucx'] : ['native'];
if (skipReason !== undefined) console.log(`engine libucx is skipped: ${skipReason}`);
const PEER = join(import.meta.dirname, '../../fixtures/programs/ipc-peer-program.ts');
const MEBIBYTE = 2 ** 20;
/** Inside a command buffer, at its limit, and by registered memory. */
const LENGTHS = [16, 1024, 4096, 8192, MEBIBYTE];
const RESET =
  /the driver resets the card, so the contents of its memory are lost: close the context and create a new one/;

/** A node that can inject faults, and how it ends. */
interface Machine {
  readonly node: EmulatedNode | RemoteNode;
  end(): Promise<void>;
}

async function startMachine(kind: string, asic: AsicName): Promise<Machine> {
  if (kind === 'in process') {
    const node = createEmulatedNode({ asic, cards: 2, dmaThreads: 0, strict: true });
    return { node, end: async () => node.close() };
  }
  const server = await TestNodeServer.start({ asic, cards: 2 });
  const node = connectEmulatedNode(server.socketPath);
  const end = async (): Promise<void> => {
    node.close();
    await server.stop();
  };
  return { node, end };
}

describe.each(ENGINES)('engine %s', (engine) => {
  describe.each(['gaudi', 'gaudi2', 'gaudi3'] as const)('%s', (asic) => {
    describe.each(['in process', 'on a node server'])('%s', { timeout: 30_000 }, (kind) => {
      expectNoLeaks();
      let machine: Machine | undefined;
      const contexts: Context[] = [];
      afterEach(async () => {
        await Promise.all(contexts.splice(0).map((context) => context.close()));
        await machine?.end();
        machine = undefined;
      });

      async function open(node: Machine['node']): Promise<Context> {
        const logSink = (): void => undefined;
        const context = await Context.create({ engine, node, env: {}, configDirectories: [], logSink });
        contexts.push(context);
        return context;
      }

      it('fails every use of the memory, also some time later, and works again when the context was opened again', async () => {
        machine = await startMachine(kind, asic);
        const { node } = machine;
        const context = await open(node);
        const worker = context.worker();
        const endpoint = worker.endpoint(worker.address());
        const memory = device({ context }, MEBIBYTE);
        const other = device({ context }, MEBIBYTE, 1);
        const rkey = rkeyOf({ context, worker, endpoint }, memory);
        const before = pattern(MEBIBYTE, 1);
        await memory.write(before);
        expect(context.query().unavailable.filter(({ name }) => name === 'gaudi0')).toEqual([]);

        node.inject(0, { kind: 'hard-reset' });
        const uses = (): (() => unknown)[] => [
          ...LENGTHS.map((byteLength) => () => memory.write(pattern(byteLength, 2))),
          ...LENGTHS.map((byteLength) => () => memory.read(new Uint8Array(byteLength))),
          () => memory.fill(3),
          () => memory.copyTo(other),
          () => other.copyTo(memory),
          ...LENGTHS.map((byteLength) => () => endpoint.put(pattern(byteLength, 4), rkey)),
          ...LENGTHS.map((byteLength) => () => endpoint.get(new Uint8Array(byteLength), rkey)),
        ];
        for (const use of uses()) expect((await failureOf(use)).status).toBeLessThan(0);
        await vi.waitFor(() => expect(memory.mapped).toBe(false));
        for (const use of uses()) expect((await failureOf(use)).status).toBeLessThan(0);
        for (const use of uses().slice(0, 2 * LENGTHS.length + 3)) {
          expect(await failureOf(use)).toMatchObject({
            code: 'ERR_GAUDI_DEVICE_BUSY',
            message: expect.stringMatching(RESET),
          });
        }
        expect((await failureOf(() => context.packRkey(memory))).message).toMatch(RESET);
        expect((await failureOf(() => device({ context }, 4096))).message).toMatch(RESET);
        expect(context.query().unavailable).toContainEqual({ name: 'gaudi0', reason: expect.stringMatching(RESET) });
        // The other card works on.
        await other.write(before);
        expect(Buffer.compare(await other.read(), before)).toBe(0);
        context.memUnmap(memory);

        rkey.release();
        await context.close();
        const again = await open(node);
        const recovered = device({ context: again }, MEBIBYTE);
        await recovered.write(before);
        expect(Buffer.compare(await recovered.read(), before)).toBe(0);
        expect(again.query().unavailable.filter(({ name }) => name === 'gaudi0')).toEqual([]);
      });

      it('is noticed without a use, while the program waits', async () => {
        machine = await startMachine(kind, asic);
        const context = await open(machine.node);
        const memory = device({ context }, 4096);
        await memory.write(pattern(4096, 1));
        machine.node.inject(0, { kind: 'hard-reset' });
        await vi.waitFor(() => expect(memory.mapped).toBe(false));
        expect((await failureOf(() => memory.write(pattern(16, 2)))).message).toMatch(RESET);
      });
    });
  });
});

describe('memory of the card that others use', { timeout: 30_000 }, () => {
  const fixture = useContexts();

  it('fails the transfers of a context in the same process, and its dma-buf cannot be exported', async () => {
    fixture.allow(/reports device_reset/);
    const node = fixture.node();
    const owner = await fixture.openOn(node, {
      config: { ACC_DEVICES: 'gaudi0', TLS: 'gaudi_cpy,gaudi_ipc,posix,self' },
    });
    const other = await fixture.openOn(node, {
      config: { ACC_DEVICES: 'gaudi1', TLS: 'gaudi_cpy,gaudi_ipc,posix,self' },
    });
    const memory = device(owner, MEBIBYTE);
    const endpoint = other.worker.endpoint(owner.worker.address());
    const rkey = endpoint.unpackRkey(owner.context.packRkey(memory));
    const bytes = pattern(MEBIBYTE, 1);
    expect(await endpoint.put(bytes, rkey)).toMatchObject({ transport: 'gaudi_ipc' });
    node.inject(0, { kind: 'hard-reset' });
    await vi.waitFor(() => expect(memory.mapped).toBe(false));
    for (const byteLength of LENGTHS) {
      const stale = { code: 'ERR_INVALID_ADDR', cause: { code: 'ERR_RKEY_STALE' } };
      expect(await failureOf(() => endpoint.put(pattern(byteLength, 2), rkey))).toMatchObject(stale);
      expect(await failureOf(() => endpoint.get(new Uint8Array(byteLength), rkey))).toMatchObject(stale);
    }
    expect((await failureOf(() => owner.context.exportDmabuf(memory))).message).toMatch(RESET);
    rkey.release();
  });

  it('is lost for those that have imported its dma-buf, when the driver resets the card', async () => {
    fixture.allow(/./);
    const node = fixture.node();
    const owner = await fixture.openOn(node, { config: { ACC_DEVICES: 'gaudi0' } });
    const other = await fixture.openOn(node, { config: { ACC_DEVICES: 'gaudi1' } });
    const memory = device(owner, MEBIBYTE);
    const exported = owner.context.exportDmabuf(memory);
    const { fd, offset } = exported;
    const mapped = other.context.memMap({ dmabuf: { fd, offset, byteLength: MEBIBYTE }, memoryType: MemoryType.GAUDI });
    exported.close();
    await mapped.write(pattern(MEBIBYTE, 1));
    node.inject(0, { kind: 'hard-reset' });
    await vi.waitFor(() => expect(memory.mapped).toBe(false));
    await owner.context.close();
    for (const byteLength of LENGTHS) {
      expect((await failureOf(() => mapped.write(pattern(byteLength, 2)))).status).toBe(Status.IO_ERROR);
    }
  });
});

describe('memory of the card that other processes use', { timeout: 30_000 }, () => {
  it.each([
    ['of the owner', 1, 'ERR_RKEY_STALE'],
    ['of the process that uses it', 0, 'ERR_GAUDI_DMA_FAILED'],
  ] as const)('fails transfers after a reset of the card %s', async (_which, card, code) => {
    const server = await TestNodeServer.start({ cards: 2 });
    const node = connectEmulatedNode(server.socketPath);
    const peers = [0, 1].map(
      (own): Child<PeerRequest, PeerAnswer> => new Child(PEER, [server.socketPath, `${own}`, 'reports device_reset']),
    );
    const [here, there] = peers as [Child<PeerRequest, PeerAnswer>, Child<PeerRequest, PeerAnswer>];
    await Promise.all(peers.map((peer) => peer.next()));
    const { key } = await there.ask({ do: 'allocate', byteLength: MEBIBYTE, seed: 1 });
    await here.ask({ do: 'unpack', key: key! });
    const put = { do: 'put', from: 'host', byteLength: MEBIBYTE, seed: 2 } as const;
    for (const way of ['put', 'get'] as const) {
      expect(await here.ask({ ...put, do: way })).toMatchObject({ status: Status.OK });
    }
    node.inject(card, { kind: 'hard-reset' });
    await vi.waitFor(async () => expect(await here.ask({ ...put, byteLength: 16 })).toMatchObject({ code }));
    for (const byteLength of LENGTHS) {
      for (const way of ['put', 'get'] as const) {
        expect(await here.ask({ ...put, do: way, byteLength })).toMatchObject({ code });
      }
    }
    for (const peer of peers) {
      await peer.ask({ do: 'close' });
      expect(await peer.end()).toBe(0);
    }
    await vi.waitFor(() => {
      for (const { owner, status, dramUsedBytes } of node.status().cards) {
        expect([owner, status, dramUsedBytes]).toEqual([null, 'operational', 0]);
      }
      expect(node.status().dmabufs).toBe(0);
    });
    node.close();
    await server.stop();
  });
});
