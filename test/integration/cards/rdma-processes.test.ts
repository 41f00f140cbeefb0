/** RDMA between two processes: the devices of their emulated nodes are connected by sockets, and nothing else connects the processes. */

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Endpoint, MemoryType } from '../../../src/index.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { useContexts } from '../../fixtures/contexts.ts';
import { fillPattern } from '../../fixtures/pattern.ts';
import { UcpPeer } from '../../fixtures/processes/ucp-peer.ts';

const BYTES = 2 ** 20;
const NODE = { cards: 1, nics: 1, nicSockets: true, dmaThreads: 0 } as const;
const CONFIG = { TLS: 'rc,gaudi_cpy,self', LOG_LEVEL: 'error', RC_TIMEOUT: '10ms', RC_RETRY_COUNT: '3' } as const;

describe('two processes over RDMA', () => {
  const fixture = useContexts('native');
  let peer: UcpPeer;

  beforeEach(async () => {
    peer = await UcpPeer.start('', 0, 'rc,gaudi_cpy,self', { UCX_LOG_LEVEL: 'error' });
  });
  afterEach(() => peer.kill());

  async function connected(
    config: Readonly<Record<string, string>> = CONFIG,
  ): Promise<{ context: Awaited<ReturnType<typeof fixture.open>>; endpoint: Endpoint }> {
    const stack = await fixture.open({ node: NODE, context: { config } });
    const endpoint = stack.worker.endpoint(peer.address, { errorHandling: 'peer' });
    return { context: stack, endpoint };
  }

  it('put, get and atomic operations on host memory and HBM of the other process', async () => {
    const { context: stack, endpoint } = await connected();
    await peer.ask({ do: 'serve' });
    for (const [name, memoryType] of [
      ['allocated', MemoryType.HOST],
      ['gaudi', MemoryType.GAUDI],
    ] as const) {
      const rkey = endpoint.unpackRkey(peer.keys[name]!);
      const local = stack.context.memMap({ allocate: BYTES, memoryType: MemoryType.HOST });
      fillPattern(local.bytes!, memoryType + 1);
      const expected = local.bytes!.slice();
      expect(endpoint.explain('put', local, rkey).chosen).toContainEqual(
        expect.objectContaining({ protocol: 'put/zcopy', transport: 'rc/hca0:1' }),
      );
      await endpoint.put(local, rkey);
      await endpoint.flush();
      local.bytes!.fill(0);
      await endpoint.get(local, rkey);
      expect(Buffer.compare(local.bytes!, expected)).toBe(0);
      rkey.release();
      stack.context.memUnmap(local);
    }
    const rkey = endpoint.unpackRkey(peer.keys['registered']!);
    await endpoint.put(new Uint8Array(8), rkey);
    await endpoint.flush();
    const results = await Promise.all(Array.from({ length: 8 }, () => endpoint.atomic('add', 1n, rkey)));
    expect(results.toSorted()).toEqual(Array.from({ length: 8 }, (_, i) => BigInt(i)));
    rkey.release();
  });

  it('a close by force cancels operations in flight to a process that is stopped, before the device gives it up', async () => {
    const { TLS, LOG_LEVEL } = CONFIG;
    const { context: stack, endpoint } = await connected({ TLS, LOG_LEVEL });
    await peer.ask({ do: 'serve' });
    const rkey = endpoint.unpackRkey(peer.keys['allocated']!);
    const local = stack.context.memMap({ allocate: BYTES });
    await endpoint.put(local, rkey);
    peer.signal('SIGSTOP');
    const operations = [
      endpoint.put(local, rkey),
      endpoint.get(local, rkey),
      endpoint.flush(),
      endpoint.tagSendSync(new Uint8Array(8)),
      endpoint.tagSend(new Uint8Array(BYTES)),
    ];
    await Promise.all([
      ...operations.map((operation) => expect(operation).rejects.toMatchObject({ status: Status.CANCELED })),
      endpoint.close({ force: true }),
    ]);
    rkey.release();
    stack.context.memUnmap(local);
  });

  it('operations in flight to a process that is killed end once, with an error', async () => {
    const { context: stack, endpoint } = await connected();
    await peer.ask({ do: 'serve' });
    const rkey = endpoint.unpackRkey(peer.keys['allocated']!);
    const local = stack.context.memMap({ allocate: BYTES });
    await endpoint.put(local, rkey);
    await endpoint.flush();
    peer.signal('SIGSTOP');
    let ended = 0;
    const outcomes = Array.from({ length: 40 }, async () => {
      const status = await endpoint.get(local, rkey).then(
        () => Status.OK,
        (error: { readonly status: Status }) => error.status,
      );
      ended += 1;
      return status;
    });
    expect(ended).toBe(0);
    await peer.kill();
    for (const status of await Promise.all(outcomes)) expect(status).not.toBe(Status.OK);
    expect(ended).toBe(40);
    await expect(endpoint.put(local, rkey)).rejects.toMatchObject({ status: expect.any(Number) });
    rkey.release();
    stack.context.memUnmap(local);
  });
});
