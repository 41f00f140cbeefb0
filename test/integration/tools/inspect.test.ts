/** The output of `console.log` for objects of the API: one line each, over both engines. */

import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { Context } from '../../../src/index.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';

const ENV = { UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' };

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('util.inspect over the engine %s', (engine, isThere) => {
  it.skipIf(!isThere)('shows one useful line (needs libucp)', async () => {
    const context = await Context.create({ engine, env: { ...process.env, ...ENV } });
    const worker = context.worker({ clientId: 0x1234n });
    const endpoint = worker.endpoint(worker.address());
    const memory = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
    const rkey = endpoint.unpackRkey(context.packRkey(memory));
    expect(inspect(context)).toMatch(new RegExp(`^Context { engine: ${engine} \\S+, cards: emulated, state: open }$`));
    expect(inspect(worker)).toMatch(/^Worker \{ clientId: 0x1234, address: \d+ bytes, state: open \}$/);
    expect(inspect(endpoint)).toMatch(
      engine === 'native' ? /^Endpoint \{ transports: \S.*, state: open \}$/ : /^Endpoint \{ .*state: open \}$/,
    );
    expect(inspect(memory)).toMatch(
      /^MemoryHandle \{ memoryType: gaudi, card: 0, byteLength: \d+, address: 0x\w+, state: mapped \}$/,
    );
    expect(inspect(rkey)).toMatch(
      /^RemoteKey \{ memoryType: gaudi, byteLength: \d+, address: 0x\w+, source: offset 0 of arena \d+ of process \d+ on the card at \S+, state: unpacked \}$/,
    );
    rkey.release();
    await context.close();
    expect(inspect(context)).toContain('state: closed');
    expect(inspect(worker)).toBe('Worker { clientId: 0x1234, state: closed }');
    expect(inspect(endpoint)).toContain('state: closed');
    expect(inspect(rkey)).toContain('state: released');
    expect(inspect(Object.getPrototypeOf(memory))).toBeTypeOf('string');
  });

  it.skipIf(!isThere)('shows what arrives, in one line and in JSON (needs libucp)', async () => {
    const context = await Context.create({ engine, env: { ...process.env, ...ENV } });
    const worker = context.worker();
    const listener = worker.listener({ address: '127.0.0.1' });
    const requests: string[][] = [];
    const accepting = (async () => {
      for await (const request of listener) {
        requests.push([inspect(request), JSON.stringify(request)]);
        request.accept();
        break;
      }
    })();
    expect(inspect(listener)).toBe(`Listener { address: 127.0.0.1, port: ${listener.port} }`);
    const client = context.worker();
    const endpoint = await client.connect({ host: '127.0.0.1', port: listener.port });
    await accepting;
    expect(requests).toEqual([
      [
        expect.stringMatching(
          /^ConnectionRequest \{ clientAddress: 127\.0\.0\.1:\d+, (?:clientId: \d+, )?live: yes \}$/,
        ),
        expect.stringMatching(/^\{"clientAddress":"127\.0\.0\.1:\d+",(?:"clientId":"\d+",)?"live":"yes"\}$/),
      ],
    ]);
    const shown = new Promise<string[]>((resolve) => {
      worker.setAmHandler(3, (message) => resolve([inspect(message), JSON.stringify(message)]));
    });
    await endpoint.amSend(3, new Uint8Array(8));
    expect(await shown).toEqual([
      'AmMessage { id: 3, headerBytes: 0, byteLength: 8 }',
      '{"id":3,"headerBytes":0,"byteLength":8}',
    ]);
    await context.close();
  });
});
