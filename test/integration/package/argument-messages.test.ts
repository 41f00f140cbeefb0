/** The messages of wrong arguments that are easy to write: they name what the program has passed, and what it should pass. */

import { describe, expect, it } from 'vitest';
import { createTeam, localExchange } from '../../../src/coll/index.ts';
import { createEmulatedNode } from '../../../src/emulator/index.ts';
import * as hlthunk from '../../../src/hlthunk.ts';
import { Context, type EngineName } from '../../../src/index.ts';
import { rkeyOf, useContexts } from '../../fixtures/contexts.ts';
import { ENGINES } from '../../fixtures/pair.ts';

/** What a call says of `value`, which has the wrong type. */
type Call = readonly [call: () => unknown, message: string];

async function messageOf(call: () => unknown): Promise<string> {
  try {
    await call();
  } catch (error) {
    return (error as Error).message;
  }
  return 'no error';
}

async function expectMessages(calls: readonly Call[]): Promise<void> {
  for (const [call, message] of calls) expect(await messageOf(call), String(call)).toBe(message);
}

/** A value that the type of a parameter excludes. */
const wrong = (value: unknown): never => value as never;

describe.each(ENGINES)('over %s', (engine: EngineName) => {
  const fixture = useContexts(engine);

  async function setUp() {
    const stack = await fixture.open();
    const other = await fixture.open();
    const { context } = stack;
    const host = context.memMap({ allocate: 4096 });
    const gone = context.memMap({ allocate: 64 });
    context.memUnmap(gone);
    const foreign = other.context.memMap({ allocate: 64 });
    const rkey = rkeyOf(stack, host);
    return { ...stack, host, gone, foreign, rkey, bytes: new Uint8Array(64), big: new Uint8Array(5000) };
  }

  it('a range that does not fit', async () => {
    const { context, endpoint, host, rkey, bytes, big } = await setUp();
    const hbm = context.memMap({ allocate: 4096, memoryType: 'gaudi' });
    await expectMessages([
      [() => endpoint.put(big, rkey), '5000 bytes do not fit into remote memory of 4096 bytes'],
      [() => endpoint.get(big, rkey), '5000 bytes do not fit into remote memory of 4096 bytes'],
      [
        () => endpoint.put(bytes, rkey, { remoteOffset: 4090 }),
        '64 bytes at offset 4090 do not fit into remote memory of 4096 bytes',
      ],
      [() => endpoint.put(bytes, rkey, { byteLength: 100 }), '100 bytes do not fit into local memory of 64 bytes'],
      [
        () => endpoint.put(bytes, rkey, { offset: 10, byteLength: 60 }),
        '60 bytes at offset 10 do not fit into local memory of 64 bytes',
      ],
      [() => endpoint.put(bytes, rkey, { offset: 100 }), 'offset 100 is beyond the end of local memory of 64 bytes'],
      [
        () => endpoint.tagSend([{ memory: bytes, offset: 70 }]),
        'offset 70 is beyond the end of local memory of 64 bytes',
      ],
      [
        () => endpoint.putList([{ local: bytes, rkey, byteLength: 8, count: 9 }]),
        'entry 0 of the list: 72 bytes do not fit into local memory of 64 bytes',
      ],
      [
        () => endpoint.atomic('add', 1, rkey, { remoteOffset: 4096 }),
        '8 bytes at offset 4096 do not fit into remote memory of 4096 bytes',
      ],
      [
        () => context.memAdvise(host, 'normal', { offset: 5000 }),
        'offset 5000 is beyond the end of memory of 4096 bytes',
      ],
      ...[host, hbm].flatMap((memory): Call[] => [
        [() => memory.write(big), '5000 bytes do not fit into memory of 4096 bytes'],
        [() => memory.write(bytes, { offset: 4090 }), '64 bytes at offset 4090 do not fit into memory of 4096 bytes'],
        [() => memory.write(bytes, { byteLength: 100 }), '100 bytes do not fit into the bytes of 64 bytes'],
        [() => memory.read(bytes, { byteLength: 100 }), '100 bytes do not fit into the target of 64 bytes'],
        [
          () => memory.fill(1, { offset: 4090, byteLength: 50 }),
          '50 bytes at offset 4090 do not fit into memory of 4096 bytes',
        ],
        [
          () => memory.copyTo(host, { targetOffset: 10 }),
          '4096 bytes at offset 10 do not fit into memory of 4096 bytes',
        ],
      ]),
      [() => endpoint.amSend(1, bytes, { header: big }), 'header of 5000 bytes: at most 4096'],
      [() => endpoint.notify(big), 'notification of 5000 bytes: at most 4096'],
    ]);
  });

  it('a value of another kind', async () => {
    const { context, worker, endpoint, host, gone, foreign, rkey, bytes } = await setUp();
    const packed = context.packRkey(host);
    await expectMessages([
      [
        () => endpoint.put(wrong([bytes]), rkey),
        'element 0 must be { memory, offset, byteLength }, got Uint8Array of 64 bytes',
      ],
      [
        () => endpoint.tagSend(wrong([{ memory: bytes }, 5])),
        'element 1 must be { memory, offset, byteLength }, got 5',
      ],
      [
        () => endpoint.tagSend(wrong([{ buffer: bytes }])),
        'argument local[0] has no field buffer, only memory, offset, byteLength',
      ],
      [() => endpoint.put(gone, rkey), 'local memory is unmapped'],
      [
        () => endpoint.put(foreign, rkey),
        'argument local must be mapped by the context of the endpoint, not by another one, got MemoryHandle',
      ],
      [
        () => endpoint.put(rkey as never, rkey),
        'argument local must be a Uint8Array or a memory handle, got RemoteKey',
      ],
      [() => endpoint.put(bytes, wrong(host)), 'argument rkey must be a remote key from unpackRkey, got MemoryHandle'],
      [
        () => endpoint.put(bytes, rkey, wrong(AbortSignal.abort())),
        'argument options must be an object with offset, byteLength, remoteOffset, remoteAddress, signal, notify, notifyId, got AbortSignal',
      ],
      [() => endpoint.flush(wrong({ timeout: 5 })), 'argument options has no field timeout, only signal'],
      [() => context.memUnmap(gone), 'the memory has been unmapped'],
      [() => context.packRkey(gone), 'the memory has been unmapped'],
      [() => gone.read(), 'memory is unmapped'],
      [
        () => context.memUnmap(foreign),
        'argument handle must be mapped by this context, not by another one, got MemoryHandle',
      ],
      [
        () => context.memUnmap(wrong(bytes)),
        'argument handle must be a memory handle from memMap, got Uint8Array of 64 bytes',
      ],
      [
        () => context.memMap(wrong({ size: 64 })),
        'argument params must be { buffer }, { address, byteLength }, { dmabuf } or { allocate }, got { size }',
      ],
      [() => host.copyTo(wrong(bytes)), 'argument other must be a memory handle, got Uint8Array of 64 bytes'],
      [
        () => worker.endpoint(wrong('127.0.0.1:5000')),
        'argument address must be a Uint8Array, got "127.0.0.1:5000"; use connect() for host and port',
      ],
      [
        () => worker.endpoint(wrong({ host: '127.0.0.1', port: 5000 })),
        'argument address must be a Uint8Array, got { host, port }; use connect() for host and port',
      ],
      [() => worker.endpoint(packed), 'worker address is a remote key'],
      [() => endpoint.unpackRkey(worker.address()), 'remote key is a worker address'],
      [() => endpoint.unpackRkey(wrong(host)), 'argument packed must be a Uint8Array from packRkey, got MemoryHandle'],
      [
        () => worker.connect(wrong('127.0.0.1:5000')),
        'argument options must be { host, port } or { address, port }, got "127.0.0.1:5000"',
      ],
      [
        () => worker.connect({ host: '127.0.0.1:5000', port: 5000 }),
        'argument host must be a name without the port, which is a separate option, got "127.0.0.1:5000"',
      ],
      [
        () => worker.connect({ address: 'localhost', port: 5000 }),
        'argument address must be a numeric IPv4 or IPv6 address (use option host for a name), got "localhost"',
      ],
      [
        () => endpoint.atomic('add', 2 ** 60, rkey),
        'argument value must be an integer, as a bigint from 2^53 on, got 1152921504606847000',
      ],
      [() => Context.create(wrong({ confg: {} })), 'argument options has no field confg; did you mean config?'],
    ]);
  });

  it('a message that is longer than its memory', async () => {
    const { worker, endpoint, bytes } = await setUp();
    const arrived = worker.messages(5)[Symbol.asyncIterator]().next();
    await endpoint.amSend(5, bytes);
    const message = (await arrived).value!;
    expect(await messageOf(() => message.into(new Uint8Array(8)))).toMatch(
      /^64 bytes do not fit into (local )?memory of 8 bytes$/,
    );
  });

  it('memory of a collective operation', async () => {
    const { worker, bytes } = await setUp();
    const team = await createTeam(worker, { rank: 0, size: 1, exchange: localExchange(1) });
    await expectMessages([
      [() => team.allReduce(bytes, new Uint8Array(8)), '64 bytes do not fit into recv of 8 bytes'],
    ]);
    await team.close();
  });
});

it('over hl-thunk', async () => {
  const node = createEmulatedNode({ cards: 1, dmaThreads: 0 });
  const device = hlthunk.open(node, {});
  const block = device.memory.allocate(4096);
  const prefix = 'invalid parameters: ';
  await expectMessages([
    [
      () => device.dma.putShort(new Uint8Array(8), 4, block, 0, 8),
      `${prefix}8 bytes at offset 4 do not fit into bytes of 8 bytes`,
    ],
    [
      () => device.dma.putShort(new Uint8Array(8), 0, block, 4090, 8),
      `${prefix}8 bytes at offset 4090 do not fit into block memory of 4096 bytes`,
    ],
    [() => block.part(4000, 100), `${prefix}100 bytes at offset 4000 do not fit into block of 4096 bytes`],
    [
      () => hlthunk.open(node, wrong({ nam: 'gaudi2' })),
      `${prefix}argument selection has no field nam; did you mean name?`,
    ],
  ]);
  device.close();
  node.close();
});
