/** Two processes over tcp with UCX_TCP_SECURITY=encrypt: every family of operations that a peer in a process of its own can answer, with all bytes compared. */

import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { createEmulatedNode } from '../../src/emulator/index.ts';
import { Context, type Endpoint, type Status } from '../../src/index.ts';
import { keyFile } from '../fixtures/key-files.ts';
import { expectNoLeaks } from '../fixtures/leak-check.ts';
import { expectSame, pattern } from '../fixtures/pair.ts';
import { createTestLog } from '../fixtures/test-log.ts';
import { UcpPeer } from '../fixtures/ucp-peer.ts';

const ENV = { UCX_TCP_SECURITY: 'encrypt', UCX_TCP_KEY_FILE: keyFile() };
const TLS = 'tcp,self';
const BYTES = 2 ** 20;

describe('two processes with encryption', { timeout: 60_000 }, () => {
  expectNoLeaks();

  it('exchange messages, put, get and count, and the bytes are those that were sent', async () => {
    const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
    const log = createTestLog();
    const context = await Context.create({
      node,
      env: { UCX_TLS: TLS, ...ENV },
      configDirectories: [],
      logSink: (level, component, message) => log.log.child(component)[level <= 2 ? 'warn' : 'info'](message),
    });
    const peer = await UcpPeer.start('', 0, TLS, ENV);
    try {
      const worker = context.worker();
      const errors: Status[] = [];
      const endpoint: Endpoint = worker.endpoint(peer.address, { onError: (_endpoint, status) => errors.push(status) });
      const connected = peer.ask({ do: 'connect', address: Buffer.from(worker.address()).toString('hex') });
      await endpoint.tagSend(Uint8Array.of(1), { tag: 1 });
      await worker.tagRecv(new Uint8Array(1), { tag: 1 });
      await connected;
      // Tagged messages of every protocol there, and one back.
      const lengths = [BYTES, BYTES - 1, BYTES - 7];
      const receiving = peer.ask({ do: 'receive', tag: 2, count: lengths.length });
      let expected = new Uint8Array(BYTES);
      const checksums = lengths.map((byteLength, i) => {
        expected = expected.slice();
        expected.set(pattern(byteLength, i));
        return crc32(expected);
      });
      for (const [i, byteLength] of lengths.entries()) await endpoint.tagSend(pattern(byteLength, i), { tag: 2 });
      expect((await receiving).checksums).toEqual(checksums);
      await peer.ask({ do: 'serve' });
      for (const [i, key] of Object.values(peer.keys).entries()) {
        const rkey = endpoint.unpackRkey(key);
        for (const byteLength of [1, 8, 300, 9000, 100_000, BYTES]) {
          const bytes = pattern(byteLength, i + byteLength);
          await endpoint.put(bytes, rkey, { remoteOffset: BYTES - byteLength });
          const back = new Uint8Array(byteLength);
          await endpoint.get(back, rkey, { remoteOffset: BYTES - byteLength });
          expectSame(back, bytes, `${byteLength} bytes`);
        }
        await endpoint.put(new Uint8Array(8), rkey);
        for (let count = 0; count < 20; count++) expect(await endpoint.atomic('add', 3, rkey)).toBe(BigInt(3 * count));
        await endpoint.flush();
        rkey.release();
      }
      const mapped = context.memMap({ allocate: BYTES });
      const packed = Buffer.from(context.packRkey(mapped)).toString('hex');
      const stop = new AbortController();
      const served = worker.serve(stop.signal);
      expect((await peer.ask({ do: 'add', key: packed, count: 50 })).count).toBe(50);
      expect(new BigUint64Array(mapped.bytes!.buffer, mapped.bytes!.byteOffset, 1)[0]).toBe(50n);
      stop.abort();
      await served;
      context.memUnmap(mapped);
      expect(errors).toEqual([]);
      await Promise.all([endpoint.close(), peer.close()]);
      expect(peer.errors).toBe('');
    } finally {
      await peer.kill();
      await context.close();
      node.close();
    }
    log.expectQuiet();
  });
});
