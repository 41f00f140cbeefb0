/** A snapshot as text, with another value in every field: a field that is exchanged with another one, or left out, changes a line. */

import { describe, expect, it } from 'vitest';
import type { ContextSnapshot } from '../../api/contract/snapshot.ts';
import type { ProcessSnapshot } from './process-snapshot.ts';
import { snapshotText, transportTable, workerNames } from './snapshot-text.ts';

const ENDPOINT = {
  id: 'e1',
  peer: 'w2',
  state: 'connected',
  isClaimed: true,
  queued: 31,
  awaitingPeer: 32,
  creditBytes: 33,
  lanes: [
    { transport: 'tcp/lo', carriesMessages: true },
    { transport: 'posix/memory', carriesMessages: false },
  ],
};

const REQUEST = {
  protocol: 'tag/rndv',
  byteLength: 41,
  doneBytes: 42,
  ageMs: 1550,
  endpoint: 'e1',
  transport: 'tcp/lo',
  waitsFor: 'credit',
};

const WORKER = {
  id: 'w1',
  endpointCount: 3,
  endpoints: [ENDPOINT],
  requests: {
    pending: 51,
    max: 52,
    ended: 53,
    groups: [{ protocol: 'tag/rndv', reason: 'credit', count: 54, byteLength: 55, oldestMs: 56 }],
    oldest: [REQUEST],
  },
  unexpected: {
    messages: 61,
    messageBytes: 62,
    streamBytes: 63,
    amBytes: 64,
    bytesMax: 65,
    first: [{ tag: '0x66', byteLength: 67 }],
  },
};

const CONTEXT = {
  number: 7,
  engine: { name: 'native', version: '8.9.10', reason: 'chosen' },
  emulated: true,
  node: { kind: 'server', pid: 11, socket: '/run/node.sock' },
  resources: ['tcp/lo', 'self/memory'],
  unavailable: [{ name: 'ib', reason: 'no device' }],
  cards: [
    {
      name: 'gaudi3',
      label: 'card 3 (accel2)',
      moduleId: 12,
      submissionsInFlight: 13,
      transfers: [{ direction: 'to the card', inFlight: 14, operations: 15, byteLength: 16, errors: 17 }],
    },
  ],
  memory: [
    { memoryType: 'gaudi', sysDevice: 3, mappings: 18, byteLength: 19 },
    { memoryType: 'host', sysDevice: undefined, mappings: 1, byteLength: 20 },
  ],
  dmabufs: [
    {
      owner: 'ib',
      exports: 21,
      exportBytes: 22,
      imports: 23,
      importBytes: 24,
      mappings: 25,
      mappedBytes: 26,
      descriptors: 27,
    },
    {
      owner: 'idle',
      exports: 0,
      exportBytes: 0,
      imports: 0,
      importBytes: 0,
      mappings: 0,
      mappedBytes: 0,
      descriptors: 0,
    },
  ],
  channels: [{ id: 'c1', local: 'card 3', remote: '0000:33', puts: 71, gets: 72, bytesPut: 73, bytesGot: 74 }],
  caches: [{ name: 'tcp', regions: 75, byteLength: 76 }],
  workers: [WORKER],
};

const PROCESS = {
  host: 'host1',
  pid: 100,
  tid: 101,
  command: 'node program.js',
  version: '1.2.3',
  nodeVersion: 'v22.0.0',
  uptimeSeconds: 104,
  contexts: [CONTEXT],
} as unknown as ProcessSnapshot;

const linesOf = (change: object = {}): string[] =>
  snapshotText({ ...PROCESS, contexts: [{ ...CONTEXT, ...change }] } as unknown as ProcessSnapshot).map((line) =>
    line.trim(),
  );

describe('the text of a snapshot', () => {
  it('has every value in its place', () => {
    expect(linesOf()).toEqual([
      'process 100 thread 101 on host1: node program.js',
      'gaudi-ucx 1.2.3, Node.js v22.0.0, running for 104 s, 1 context',
      'context 7: engine native 8.9.10 (chosen), cards emulated by node server 11 at /run/node.sock',
      'transports: tcp/lo, self/memory',
      'card 3 (accel2), module 12: 13 submissions in flight; to the card 15 transfers of 16 bytes, 17 failed, 14 in flight',
      'mapped memory: gaudi of card 3 (accel2) 19 bytes in 18 mappings; host 20 bytes in 1 mapping',
      'channel c1 from card 3 to the card at 0000:33: 71 puts of 73 bytes, 72 gets of 74 bytes',
      'dma-bufs of ib: 21 exported (22 bytes), 23 imported (24 bytes), 25 mapped (26 bytes), 27 descriptors kept open',
      'registration caches: tcp 76 bytes in 75 regions',
      'worker 0 of context 7 of process 100 thread 101 (w1): 3 endpoints, 51 of 52 requests pending, 53 completed and not freed',
      'endpoint e1 to w2: connected, 31 queued, 32 await the peer, 33 bytes of credit; lanes tcp/lo (messages), posix/memory',
      'and 2 endpoints more',
      'pending: 54 tag/rndv, 55 bytes, wait for: credit, oldest 56 ms',
      'tag/rndv 42 of 41 bytes on endpoint e1 over tcp/lo, 1.6 s, waits for credit',
      'arrived, not received yet: 61 tagged messages (62 bytes), 63 bytes of streams, 64 bytes of active messages; limit 65 bytes',
      'tag 0x66: 67 bytes',
    ]);
  });

  it('says what is not known, and leaves out what is not there', () => {
    const { queued: _queued, ...rest } = ENDPOINT;
    const endpoint = { ...rest, peer: undefined, state: 'not known', isClaimed: false, lanes: [] };
    const requests = { pending: 0, max: 52, ended: 0, groups: [], oldest: [] };
    const workers = [{ ...WORKER, endpointCount: 1, endpoints: [endpoint], requests, unexpected: undefined }];
    const none = { resources: [], cards: [], memory: [], dmabufs: [], channels: [], caches: [] };
    expect(linesOf({ ...none, emulated: false, workers }).slice(2)).toEqual([
      'context 7: engine native 8.9.10 (chosen), cards real',
      'transports: none',
      'worker 0 of context 7 of process 100 thread 101 (w1): 1 endpoint, 0 of 52 requests pending, 0 completed and not freed',
      'endpoint e1 to a libucp peer: state unknown, made by the peer (no endpoint here); lanes unknown',
      'arrived, not received yet: unknown',
    ]);
  });

  it.each([
    [{ kind: 'private' }, 'emulated in this process only'],
    [{ kind: 'devices' }, 'emulated behind device nodes'],
  ])('says where cards are emulated: %j', (node, text) => {
    expect(linesOf({ node })[2]).toMatch(new RegExp(`cards ${text}$`));
  });

  it('shows the active messages or streams that alone are not received', () => {
    const unexpected = { ...WORKER.unexpected, messages: 0, messageBytes: 0, streamBytes: 0, amBytes: 1, first: [] };
    expect(linesOf({ workers: [{ ...WORKER, unexpected }] }).at(-1)).toMatch(/1 bytes of active messages/);
    const nothing = { ...unexpected, amBytes: 0 };
    expect(linesOf({ workers: [{ ...WORKER, unexpected: nothing }] }).join()).not.toMatch(/not received/);
  });

  it('shows dma-bufs that are only imported', () => {
    const [used] = CONTEXT.dmabufs;
    expect(linesOf({ dmabufs: [{ ...used, exports: 0 }] }).join('\n')).toMatch(/dma-bufs of ib: 0 exported/);
  });

  it('names workers of the other processes', () => {
    const other = { ...PROCESS, pid: 200, tid: 200, contexts: [{ ...CONTEXT, workers: [{ ...WORKER, id: 'w2' }] }] };
    const names = workerNames([PROCESS, other as unknown as ProcessSnapshot]);
    expect([names('w1'), names('w2'), names('w3')]).toEqual([
      'worker 0 of context 7 of process 100 thread 101',
      'worker 0 of context 7 of process 200',
      undefined,
    ]);
    expect(snapshotText(PROCESS, names).join('\n')).toMatch(/endpoint e1 to worker 0 of context 7 of process 200:/);
  });
});

it('the table of transports has those that are not used, with the reason', () => {
  expect(transportTable(CONTEXT as unknown as ContextSnapshot)).toEqual([
    'transports and devices of the engine native 8.9.10:',
    '  tcp/lo',
    '  self/memory',
    '  ib is unusable: no device',
  ]);
  const engine = { name: 'libucx', version: '1.17.0', reason: '' };
  expect(transportTable({ ...CONTEXT, engine } as unknown as ContextSnapshot)[0]).toMatch(
    /in addition to those of libucp/,
  );
});
