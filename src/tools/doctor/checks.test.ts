/** Every check of the doctor finds its problem, with a remedy, and only that. */

import { describe, expect, it } from 'vitest';
import { runChecks } from './checks.ts';
import type { CardFacts, Facts, NodeFacts } from './facts.ts';

const card: CardFacts = {
  index: 0,
  minor: 0,
  busId: '0000:19:00.0',
  state: 'operational',
  reason: undefined,
  owner: undefined,
  excludedBy: undefined,
};
const second = { ...card, index: 1, minor: 1, busId: '0000:1a:00.0' };
const node: Extract<NodeFacts, { readonly cards: unknown }> = {
  kind: 'kernel',
  emulated: false,
  isOwn: false,
  driverVersion: '1.20',
  abi: 'drm',
  cards: [card, second],
  usesCards: true,
  missing: undefined,
  links: [{ cards: [card, second], total: 7, down: 0 }],
  whyNoCards: undefined,
};
/** A machine without a problem. */
const GOOD: Facts = {
  capabilities: 0n,
  memlockBytes: Number.POSITIVE_INFINITY,
  openFilesMax: 4096,
  sharedMemory: {
    folder: '/dev/shm',
    totalBytes: 2 ** 33,
    freeBytes: 2 ** 32,
    connectionBytes: 2 ** 20,
    failure: undefined,
  },
  ptraceScope: 0,
  isInitialUserNamespace: true,
  ownNamespaces: [],
  processesElsewhere: 0,
  sockets: { folder: '/run/user/1000/gaudi-ucx', failure: undefined },
  node,
  moduleVersion: '1.20',
  library: { version: '1.17.0' },
  udmabuf: { refusal: undefined, bytesMax: 2 ** 26 },
  clockSource: 'tsc',
  processors: 8,
  processes: 2,
  workers: 3,
  networks: ['eth0'],
  ports: undefined,
};

/** The checks that are not ok, as `state name`. */
function problems(facts: Partial<Facts>): string[] {
  const checks = runChecks({ ...GOOD, ...facts }).filter(({ state }) => state !== 'ok');
  for (const { state, remedy } of checks) if (state !== 'note') expect(remedy).toBeTruthy();
  return checks.map(({ state, name }) => `${state} ${name}`);
}

describe('the doctor', () => {
  it('finds nothing on a good machine', () => {
    expect(problems({})).toEqual([]);
  });

  it.each<[string, Partial<Facts>, string]>([
    ['a low limit of locked memory', { memlockBytes: 65_536 }, 'warning locked memory'],
    ['few descriptors', { openFilesMax: 256 }, 'warning open files'],
    ['fewer descriptors than a context needs', { openFilesMax: 64 }, 'failure open files'],
    [
      'a /dev/shm without room for a connection',
      { sharedMemory: { ...GOOD.sharedMemory!, totalBytes: 2 ** 20, freeBytes: 2 ** 20 - 4096 } },
      'failure shared memory',
    ],
    [
      'the /dev/shm of docker',
      { sharedMemory: { ...GOOD.sharedMemory!, freeBytes: 2 ** 25 } },
      'warning shared memory',
    ],
    [
      'a /dev/shm that is mounted read-only',
      { sharedMemory: { ...GOOD.sharedMemory!, failure: 'no shared memory in /dev/shm: open: EROFS' } },
      'failure shared memory',
    ],
    [
      'links that are down',
      { node: { ...node, links: [{ cards: [card, second], total: 7, down: 1 }] } },
      'warning links',
    ],
    ['no /dev/shm', { sharedMemory: undefined }, 'failure shared memory'],
    ['Yama', { ptraceScope: 1 }, 'warning memory of peers'],
    ['Yama that refuses the superuser too', { capabilities: 1n << 19n, ptraceScope: 3 }, 'warning memory of peers'],
    ['a container', { ownNamespaces: ['pid', 'ipc'] }, 'note namespaces'],
    ['processes in another container', { processesElsewhere: 2 }, 'warning namespaces'],
    ['a folder of another user', { sockets: { folder: '/tmp/x', failure: 'EPERM' } }, 'failure socket folder'],
    ['no node server', { node: { failure: 'no server' } }, 'failure driver'],
    ['a broken card', { node: { ...node, cards: [{ ...card, state: 'in reset' }] } }, 'failure cards'],
    ['cards that are all in use', { node: { ...node, cards: [{ ...card, owner: '7 (x)' }] } }, 'warning cards'],
    ['no UCX library', { library: { reason: 'not found' } }, 'note UCX library'],
    ['no /dev/udmabuf', { udmabuf: { refusal: 'no device', bytesMax: undefined } }, 'note host dma-bufs'],
    ['no network', { networks: [] }, 'note networks'],
    ['a used up range of ports', { ports: { count: 4, inUse: 4 } }, 'failure ports'],
    ['a slow clock', { clockSource: 'hpet' }, 'warning clock'],
    ['more pollers than processors', { processors: 2, processes: 3 }, 'warning processors'],
    ['namespaces that cannot be seen', { ownNamespaces: undefined }, 'note namespaces'],
  ])('finds %s', (_what, facts, problem) => {
    expect(problems(facts).filter((each) => each !== 'note cards')).toEqual([problem]);
  });

  it('counts the connections that fit into the shared memory', () => {
    const found = runChecks(GOOD).find(({ name }) => name === 'shared memory')?.found;
    expect(found).toBe('/dev/shm: 4.0 GiB of 8.0 GiB free, enough for 4096 connections of 1.0 MiB');
  });

  it('distinguishes emulated cards from real ones that cannot be used', () => {
    const emulated: NodeFacts = { ...node, kind: 'emulator', emulated: true, isOwn: true };
    expect(problems({ node: emulated, moduleVersion: undefined })).toEqual(['note driver']);
    expect(problems({ node: emulated })).toEqual(['warning driver']);
    expect(problems({ node: { ...node, cards: [], whyNoCards: 'EACCES' } })).toEqual(['failure driver', 'note cards']);
  });

  it('does not warn a process of what its capabilities lift', () => {
    const limits = { memlockBytes: 65_536, ptraceScope: 1 };
    expect(problems({ ...limits, capabilities: (1n << 14n) | (1n << 19n) })).toEqual([]);
    expect(problems({ ...limits, capabilities: 1n << 14n })).toEqual(['warning memory of peers']);
    expect(problems({ ...limits, capabilities: 1n << 19n })).toEqual(['warning locked memory']);
  });

  it('names the capability that lifts a low limit', () => {
    const memlock = runChecks({ ...GOOD, memlockBytes: 65_536, capabilities: 1n << 14n })[0];
    expect(memlock).toMatchObject({ name: 'locked memory', found: expect.stringContaining('CAP_IPC_LOCK') });
  });

  it('accepts as many processes as processors', () => {
    expect(problems({ processors: 2, processes: 2 })).toEqual([]);
  });

  it.each([
    ['drm', 'habanalabs 1.20, 2 cards, ioctls of DRM (Linux 6.7 or newer)'],
    ['habanalabs', 'habanalabs 1.20, 2 cards, ioctls of the driver before DRM'],
    [undefined, 'habanalabs 1.20, 2 cards'],
  ] as const)('names the ABI of the driver: %s', (abi, found) => {
    const driver = runChecks({ ...GOOD, node: { ...node, abi } }).find(({ name }) => name === 'driver');
    expect(driver).toEqual({ name: 'driver', state: 'ok', found });
  });

  it('names the process that uses a card', () => {
    const cards = [{ ...card, owner: '4711 (python3)' }, second];
    const found = runChecks({ ...GOOD, node: { ...node, cards } }).find(({ name }) => name === 'cards');
    expect(found).toEqual({
      name: 'cards',
      state: 'ok',
      found: 'card 0 (accel0, 0000:19:00.0): used by process 4711 (python3)',
    });
  });

  it.each<[string, readonly CardFacts[], string, string[]]>([
    [
      'a failed card that the environment excludes',
      [{ ...card, state: 'removed', excludedBy: 'UCX_ACC_DEVICES' }, second],
      'note',
      ['1 operational, none in use', 'card 0 (accel0, 0000:19:00.0): removed; excluded by UCX_ACC_DEVICES'],
    ],
    [
      'an excluded card that another program has',
      [{ ...card, owner: '7 (x)', excludedBy: 'HABANA_VISIBLE_DEVICES' }, second],
      'note',
      ['1 operational, none in use', 'card 0 (accel0, 0000:19:00.0): excluded by HABANA_VISIBLE_DEVICES'],
    ],
    [
      'no free card besides an excluded one',
      [
        { ...card, excludedBy: 'GAUDI_MAPPING_TABLE' },
        { ...second, owner: '7 (x)' },
      ],
      'warning',
      [
        'card 1 (accel1, 0000:1a:00.0): used by process 7 (x)',
        'card 0 (accel0, 0000:19:00.0): excluded by GAUDI_MAPPING_TABLE',
      ],
    ],
    [
      'programs without cards',
      [card, { ...second, state: 'malfunction' }].map((each) => ({ ...each, excludedBy: 'UCX_TLS' })),
      'note',
      [
        'card 0 (accel0, 0000:19:00.0): excluded by UCX_TLS',
        'card 1 (accel1, 0000:1a:00.0): malfunction; excluded by UCX_TLS',
      ],
    ],
  ] as const)('notes %s', (_what, cards, state, lines) => {
    const found = runChecks({ ...GOOD, node: { ...node, cards } }).find(({ name }) => name === 'cards');
    expect(found).toMatchObject({ state, found: lines.join('\n') });
  });

  it('warns of cards that are named and do not exist', () => {
    const missing = 'HABANA_VISIBLE_DEVICES=0,9 names cards that do not exist: 9';
    const check = runChecks({ ...GOOD, node: { ...node, missing } }).find(({ name }) => name === 'cards');
    expect(check).toMatchObject({ state: 'warning', found: `2 operational, none in use\n${missing}` });
  });

  it('does not fail without a driver for programs that use no cards', () => {
    const without = { ...node, cards: [], whyNoCards: 'no driver', usesCards: false };
    expect(problems({ node: without })).toEqual(['note driver', 'note cards']);
  });

  it('has one line for cards of which the same is true', () => {
    const others = [2, 3, 5, 6].map((index) => ({ ...card, index, minor: index, busId: `0000:3${index}:00.0` }));
    const cards = [
      { ...card, owner: '7 (x)' },
      { ...second, owner: '7 (x)' },
      ...others.map((each) => ({ ...each, state: 'removed', owner: undefined })),
      { ...card, index: 7, minor: 7, busId: '0000:b4:00.0', state: 'in reset', reason: 'EAGAIN' },
    ];
    const found = runChecks({ ...GOOD, node: { ...node, cards } }).find(({ name }) => name === 'cards')?.found;
    expect(found?.split('\n')).toEqual([
      'cards 2-3, 5-6: removed',
      'card 7 (accel7, 0000:b4:00.0): in reset (EAGAIN)',
      'cards 0-1: used by process 7 (x)',
    ]);
  });
});
