/** Everything of `gaudi-ucx/uct` with bad values in the place of each argument: errors are typed, nothing leaks, and transports stay usable. */

import { describe, expect, it } from 'vitest';
import { createEmulatedNode } from '../../../src/emulator/index.ts';
import { open } from '../../../src/hlthunk/index.ts';
import { type Config, loadConfig } from '../../../src/ucs/config/config.ts';
import { memoryTypesOfMask } from '../../../src/ucs/memory/memory-type.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import type { MdMemory } from '../../../src/uct/api/memory.ts';
import type { MemoryDomain } from '../../../src/uct/api/memory-domain.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../../../src/uct/gaudi/base/config.ts';
import { GAUDI_IPC_CONFIG_TABLE } from '../../../src/uct/gaudi/ipc/config.ts';
import { IB_CONFIG_TABLE, RC_CONFIG_TABLE } from '../../../src/uct/ib/base/config.ts';
import { CMA_CONFIG_TABLE } from '../../../src/uct/shm/cma/config.ts';
import { POSIX_CONFIG_TABLE } from '../../../src/uct/shm/posix/config.ts';
import { TCP_CM_CONFIG_TABLE, TCP_CONFIG_TABLE } from '../../../src/uct/tcp/config.ts';
import * as uct from '../../../src/uct.ts';
import { CountingCompletion, finish, keyOf, ownBytes, UctFixture } from '../../contract/uct/uct-fixture.ts';
import { IMPLEMENTATIONS } from '../../contract/uct/uct-implementations.ts';
import { type Calls, type GoodCall, Misuse, uncovered } from '../../fixtures/calls/misuse.ts';
import { publicCalls } from '../../fixtures/calls/public-calls.ts';
import { EXEMPT, type UctParts, uctObjects } from '../../fixtures/calls/uct-calls.ts';
import { expectNoLeaks } from '../../fixtures/leak-check.ts';
import { createTestLog } from '../../fixtures/test-log.ts';
import { SEGMENT_PROBES } from '../../fixtures/transports/own-segments.ts';

const BYTES = 4096;
const DECLARED = publicCalls('src/uct.ts');

/** The types whose calls are tried below. */
const TRIED = [
  '',
  'MemoryDomain',
  'Iface',
  'UctEndpoint',
  'OwnComponent',
  'ConnectionManager',
  'ClientRequest',
  'GaudiResources',
  'typeof GaudiResources',
  'RegisterBlocks',
  'typeof RegisterBlocks',
] as const;

it('every type with public calls is tried, or exempt', () => {
  const tried = Object.fromEntries(TRIED.map((type) => [type, 'tried']));
  expect(uncovered(DECLARED, {}, { ...EXEMPT, ...tried })).toEqual([]);
});

/** Tries the calls of a type, which must be all that it declares; those that the object does not have are optional. */
async function tryAll(misuse: Misuse, type: (typeof TRIED)[number], object: object, calls: Calls): Promise<void> {
  const declared = DECLARED.get(type)!;
  expect(uncovered(new Map([[type, declared]]), { [type]: calls }, {})).toEqual([]);
  const isThere = ([method]: [string, GoodCall]): boolean =>
    method === 'new' || Reflect.get(object, method) !== undefined;
  await misuse.tryMethods(type, object, Object.fromEntries(Object.entries(calls).filter(isThere)), declared);
}

/** Memory for which peers can have a key: allocated if the memory domain allocates, else registered. */
function sharedMemory(md: MemoryDomain): MdMemory {
  const [memoryType] = memoryTypesOfMask(md.attributes.allocateMemoryTypes);
  return memoryType === undefined ? md.memReg(ownBytes(BYTES)) : md.memAlloc(BYTES, { memoryType });
}

/** Puts bytes and gets them back. */
async function expectWorks({ md, iface, rkey }: UctParts): Promise<void> {
  const endpoint = iface.connect(iface.address);
  const [source, target] = [ownBytes(BYTES), ownBytes(BYTES)];
  for (let i = 0; i < BYTES; i++) source[i] = i * 7;
  const [from, to] = [md.memReg(source), md.memReg(target)];
  const piece = (memory: MdMemory) => [{ memory, offset: 0, byteLength: BYTES }];
  expect(await finish(iface, (completion) => endpoint.putZcopy(piece(from), 0, rkey, completion))).toBe(Status.OK);
  expect(await finish(iface, (completion) => endpoint.flush(completion))).toBe(Status.OK);
  expect(await finish(iface, (completion) => endpoint.getZcopy(piece(to), 0, rkey, completion))).toBe(Status.OK);
  expect(Buffer.compare(source, target)).toBe(0);
  md.memDereg(from);
  md.memDereg(to);
  endpoint.close();
}

describe.each(IMPLEMENTATIONS)('%s', (_name, setup) => {
  const fixture = new UctFixture(setup);

  it('checks every argument, and operations with bad values affect no other', async () => {
    const { md } = fixture;
    const memory = sharedMemory(md);
    const freed = sharedMemory(md);
    const rkey = keyOf(md, memory);
    const iface = md.openIface(md.resources[0]!);
    // Without a handler, messages would block later ones.
    iface.setAmHandler(() => {});
    const parts: UctParts = { md, iface, endpoint: iface.connect(iface.address), memory, rkey };
    const objects = uctObjects(parts);
    await expectWorks(parts);
    if (freed.bytes === undefined || md.attributes.allocateMemoryTypes !== 0) md.memFree(freed);
    else md.memDereg(freed);
    const misuse = new Misuse(memory, rkey, iface).add('freed memory', freed);
    for (const { name, object, calls } of objects) {
      await tryAll(misuse, name, object, calls);
      iface.progress();
    }
    await misuse.settled();
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
    await expectWorks(parts);
    rkey.release();
  });
});

describe('components', () => {
  expectNoLeaks(SEGMENT_PROBES);

  const tables = [
    GAUDI_COPY_CONFIG_TABLE,
    GAUDI_IPC_CONFIG_TABLE,
    POSIX_CONFIG_TABLE,
    CMA_CONFIG_TABLE,
    TCP_CONFIG_TABLE,
    TCP_CM_CONFIG_TABLE,
    IB_CONFIG_TABLE,
    RC_CONFIG_TABLE,
  ];
  const closeMade = (made: unknown): void => (made as { close(): void }).close();

  it('checks every argument of components and of their common parts', async () => {
    const log = createTestLog();
    const node = createEmulatedNode({ cards: 1, nics: 1, dmaThreads: 0, log: log.log });
    // Not a plain object, whose contents would be checked when it is read.
    const config = Object.create(loadConfig(tables)) as Config;
    const services = { log: log.log, clock: systemClock, config, isDeviceAllowed: () => true };
    const shared = new uct.GaudiResources({ node, mappingTable: undefined });
    const misuse = new Misuse(shared);
    const calls = {
      completeOne: { args: () => [new CountingCompletion(), 0], trusts: 'called at the end of every operation' },
      hostRange: { args: () => [4096, 1] },
      memoryTypeBit: { args: () => [0], trusts: 'arithmetic on a memory type' },
      statsNode: { args: () => ['uct_md', 'x', {}], trusts: 'called by components' },
      scavenge: { args: () => [] },
      selfComponent: { args: () => [] },
      posixComponent: { args: () => [] },
      cmaComponent: { args: () => [] },
      tcpComponent: { args: () => [] },
      gaudiCopyComponent: { args: () => [shared] },
      gaudiIpcComponent: { args: () => [shared] },
      ibComponent: { args: () => [node.verbs] },
    };
    await tryAll(misuse, '', uct, calls);
    const components = [
      uct.selfComponent(),
      uct.posixComponent(),
      uct.cmaComponent(),
      uct.tcpComponent(),
      uct.gaudiCopyComponent(shared),
      uct.gaudiIpcComponent(shared),
      uct.ibComponent(node.verbs),
    ];
    const opening = { args: () => [services], undo: closeMade };
    for (const component of components) {
      await tryAll(misuse, 'OwnComponent', component, { openMd: opening, openConnectionManager: opening });
    }
    await tryAll(misuse, 'GaudiResources', shared, {
      acquire: { args: () => [services], undo: () => shared.release() },
    });
    // Without impostors of itself, which would be nodes with getters that throw.
    const choosing = new Misuse();
    await tryAll(choosing, 'typeof GaudiResources', uct.GaudiResources, {
      new: { args: () => [{ node, mappingTable: undefined }] },
      isGenuine: { args: () => [shared], total: 'tells whether a value is an object of the class' },
    });
    const device = open(node, {}, { log: log.log });
    const blocks = new uct.RegisterBlocks(device, services.config);
    await tryAll(misuse, 'RegisterBlocks', blocks, { read: { args: () => ['NIC0_UMR0_0'] } });
    await tryAll(misuse, 'typeof RegisterBlocks', uct.RegisterBlocks, {
      new: { args: () => [device, services.config] },
    });
    device.close();
    await misuse.settled();
    expect([...misuse.surprises, ...choosing.surprises]).toEqual([]);
    expect([...misuse.accepted, ...choosing.accepted]).toEqual([]);
    expect(shared.cards).toEqual([]);
    node.close();
    log.expectQuiet();
  });

  it('checks every argument of connection managers', async () => {
    const log = createTestLog();
    const services = { log: log.log, clock: systemClock, config: loadConfig(tables) };
    const manager = uct.tcpComponent().openConnectionManager!(services);
    const address = { address: '127.0.0.1', port: 0 };
    const nowhere = { address: '127.0.0.1', port: 1 };
    const misuse = new Misuse(manager);
    const calls = {
      listen: { args: () => [address, 8, (): void => {}], undo: closeMade },
      connect: {
        args: () => [nowhere, new Uint8Array(4), () => Status.OK],
        undo: (made: unknown) => (made as uct.ConnectAttempt).cancel(),
      },
      wait: { args: () => [0] },
    };
    await tryAll(misuse, 'ConnectionManager', manager, calls);
    await misuse.settled();
    const ended: (Status | undefined)[] = [];
    const answered: Status[] = [];
    let request: uct.ClientRequest | undefined;
    const listener = manager.listen(address, 8, (asked) => {
      request = asked;
    });
    const ask = (): unknown =>
      manager.connect(listener.address, new Uint8Array(4), ({ status }) => {
        answered.push(status);
        return Status.OK;
      });
    const drive = async (isDone: () => boolean): Promise<void> => {
      while (!isDone()) if (manager.progress() === 0) await manager.wait(1e6);
    };
    ask();
    await drive(() => request !== undefined);
    const requestCalls = {
      accept: { args: () => [new Uint8Array(1), (): void => {}] },
      reject: { args: () => [Status.REJECTED, ''] },
    };
    await tryAll(misuse, 'ClientRequest', request!, requestCalls);
    if (request?.live === true) request.reject(Status.REJECTED, '');
    await drive(() => answered.length === 1);
    request = undefined;
    ask();
    await drive(() => request !== undefined);
    (request as unknown as uct.ClientRequest).accept(new Uint8Array(1), (status) => ended.push(status));
    await drive(() => ended.length === 1 && answered.length === 2);
    expect(ended).toEqual([Status.OK]);
    expect(misuse.surprises).toEqual([]);
    expect(misuse.accepted).toEqual([]);
    expect(misuse.refused).toEqual([]);
    manager.close();
    log.expectQuiet();
  });
});
