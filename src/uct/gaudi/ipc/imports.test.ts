/** The imports of a memory domain: several cards and owners, owners that are silent, full or end, and what is left of an import that fails. */

import { unlinkSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { finish } from '../../../../test/contract/uct/uct-fixture.ts';
import { IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { asProcesses, useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { IPC_HANDLE_BYTES } from '../../../hlthunk/index.ts';
import {
  connectUnix,
  listenUnix,
  openFileDescriptors,
  ownIdentity,
  SocketType,
  type UnixSocket,
} from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { ManualClock, systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import { GaudiResources } from '../base/resources.ts';
import { CHANNEL_PEERS_MAX, servicePath } from './channel-service.ts';
import { GAUDI_IPC_CONFIG_TABLE } from './config.ts';
import type { IpcKey } from './key.ts';
import {
  CHANNEL_MESSAGE_BYTES_MAX,
  ChannelMessage,
  closingMessage,
  handleMessage,
  type ParsedMessage,
  readMessage,
  requestMessage,
  retiredMessage,
} from './layout.ts';
import { IpcMd } from './md.ts';
import { LOCAL_OWNERS } from './shared-memory.ts';

const fixture = useIpcPeers();

const BYTES = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
/** Calls of progress in which an owner answers several times. */
const ROUNDS = 1000;

/** The status of a put while its owner and this end make progress, but not the event loop. */
function driven(here: IpcPeer, key: IpcKey, there?: IpcPeer): Status {
  let status: Status = Status.NO_RESOURCE;
  for (let round = 0; round < ROUNDS && status === Status.NO_RESOURCE; round++) {
    there?.iface.progress();
    status = here.tryPutShort(BYTES, key);
    here.iface.progress();
  }
  return status;
}

/** Waits until the time limit of the owner is over. */
function timedOut(here: IpcPeer, key: IpcKey, clock: ManualClock): void {
  expect(here.tryPutShort(BYTES, key)).toBe(Status.NO_RESOURCE);
  clock.advance(1e9 + 1);
  here.iface.progress();
  expect(here.tryPutShort(BYTES, key)).toBe(Status.TIMED_OUT);
}

describe('an arena', () => {
  it.each([
    ['by look-up', () => undefined],
    ['by socket', asProcesses],
  ])('that was shared %s does not keep the descriptor that it came with', async (_title, shareAs) => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    shareAs();
    const key = here.unpack(far);
    const { cache } = here.ipc.imports;
    expect(await here.putShort(BYTES, key)).toBe(Status.OK);
    const before = openFileDescriptors();
    for (const regions of [2, 3]) {
      cache.invalidate(() => true);
      expect(await here.putShort(BYTES, key)).toBe(Status.OK);
      expect([cache.counters.mem_regs, openFileDescriptors()]).toEqual([regions, before]);
    }
  });

  it('is imported into each card that uses it', async () => {
    const node = fixture.makeNode({ cards: 3 });
    const there = new IpcPeer({ node, card: 2, log: fixture.log.log });
    const far = there.allocate(64);
    const table = [0, 1].map((index) => ({ index, bus_id: node.cards()[index]!.busId }));
    const shared = new GaudiResources({ node, mappingTable: JSON.stringify(table) });
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
    const ipc = new IpcMd(shared, { log: fixture.log.log, clock: systemClock, config });
    const key = ipc.rkeyUnpack(far.key);
    for (const [i, resource] of ipc.resources.entries()) {
      const iface = ipc.openIface(resource);
      const endpoint = iface.connect(iface.address);
      expect(await finish(iface, (completion) => endpoint.putShort(BYTES, i, 4, 8 * i, key, completion))).toBe(
        Status.OK,
      );
    }
    expect(ipc.imports.cache.counters).toMatchObject({ mem_regs: 2, misses: 2 });
    const bytes = await there.read(far);
    expect([bytes.slice(0, 4), bytes.slice(8, 12)]).toEqual([BYTES.slice(0, 4), BYTES.slice(1, 5)]);
    key.release();
    ipc.close();
    there.close();
  });

  it('of another length than its key says is not kept', async () => {
    const [here, there] = fixture.pair();
    const key = here.unpack(there.allocate(64));
    Object.assign(key.place, { arenaBytes: key.place.arenaBytes + 1 });
    expect(await here.putShort(BYTES, key)).toBe(Status.UNREACHABLE);
    expect([here.ipc.imports.cache.numRegions, here.shared.cards[0]!.device.imports.count]).toEqual([0, 0]);
  });
});

describe('an importer that has closed', () => {
  it('is not notified by owners of its thread', async () => {
    const [here, there] = fixture.pair();
    const key = here.unpack(there.allocate(64));
    expect(await here.putShort(BYTES, key)).toBe(Status.OK);
    const { importers } = LOCAL_OWNERS.get(key.place.ownerKey)!;
    expect(importers.size).toBe(1);
    here.close();
    expect(importers.size).toBe(0);
  });

  it('wakes those who wait for memory', async () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock });
    const far = there.allocate(64);
    asProcesses();
    expect(here.tryPutShort(BYTES, here.unpack(far))).toBe(Status.NO_RESOURCE);
    let isAwake = false;
    const sleep = here.ipc.imports.sleep(60e9).then(() => {
      isAwake = true;
    });
    here.ipc.imports.close();
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    expect(isAwake).toBe(true);
    await sleep;
  });
});

describe('an owner that does not answer', () => {
  it('ends a sleep at its time limit', async () => {
    const clock = new ManualClock();
    clock.advance(100e9);
    const [here, there] = fixture.pair({ clock, config: { GAUDI_IPC_TIMEOUT: '1s' } });
    const far = there.allocate(64);
    asProcesses();
    expect(here.tryPutShort(BYTES, here.unpack(far))).toBe(Status.NO_RESOURCE);
    let isAwake = false;
    const sleep = here.ipc.imports.sleep(60e9).then(() => {
      isAwake = true;
    });
    clock.advance(1e9 + 1);
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    expect(isAwake).toBe(true);
    here.ipc.imports.close();
    await sleep;
  });

  it('receives further requests after a NACK', () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock, config: { GAUDI_IPC_TIMEOUT: '1s' } });
    const [gone, other] = [there.allocate(64), there.allocate(64)];
    asProcesses();
    const [key, next] = [here.unpack(gone), here.unpack(other)];
    timedOut(here, key, clock);
    expect(here.tryPutShort(BYTES, next)).toBe(Status.TIMED_OUT);
    there.free(gone);
    for (let round = 0; round < ROUNDS; round++) there.iface.progress();
    expect(driven(here, next, there)).toBe(Status.INPROGRESS);
  });

  it('is not waited for when another one has ended', () => {
    const clock = new ManualClock();
    const here = fixture.open({ clock, config: { GAUDI_IPC_TIMEOUT: '1s' } });
    const [silent, ending] = fixture.pair();
    const [first, second, third] = [silent.allocate(64), silent.allocate(64), ending.allocate(64)];
    asProcesses();
    timedOut(here, here.unpack(first), clock);
    timedOut(here, here.unpack(third), clock);
    ending.ipc.close();
    here.ipc.imports.poll();
    expect(here.tryPutShort(BYTES, here.unpack(second))).toBe(Status.TIMED_OUT);
  });
});

/** The socket of an owner that a test plays, and the next connection of this process to it. */
function playedOwner(...keys: readonly IpcKey[]): { readonly accept: () => UnixSocket; readonly close: () => void } {
  const tag = Uint8Array.from({ length: keys[0]!.place.serviceTag.byteLength }, (_, i) => 200 + i);
  const listener = listenUnix(servicePath(ownIdentity(), tag), SocketType.SEQPACKET);
  for (const key of keys) Object.assign(key.place, { serviceTag: tag, ownerKey: 'played' });
  const accepted: UnixSocket[] = [];
  return {
    accept: () => {
      const socket = listener.accept()!;
      accepted.push(socket);
      return socket;
    },
    close: () => {
      for (const socket of accepted) socket.close();
      unlinkSync(listener.path);
      listener.close();
    },
  };
}

/** The next request at the socket of an owner. */
function requestAt(socket: UnixSocket): ParsedMessage & { readonly kind: typeof ChannelMessage.REQUEST } {
  const buffer = new Uint8Array(CHANNEL_MESSAGE_BYTES_MAX);
  const message = readMessage(buffer.subarray(0, socket.recvmsg(buffer, [])));
  if (message?.kind !== ChannelMessage.REQUEST) throw new Error('no request has come');
  return message;
}

describe('an owner that ends', () => {
  it('fails the requests to it, and no others', () => {
    const [here, there] = fixture.pair();
    const [near, far] = [there.allocate(64), there.allocate(64)];
    asProcesses();
    const [key, lost] = [here.unpack(near), here.unpack(far)];
    const owner = playedOwner(lost);
    for (const each of [key, lost]) expect(here.tryPutShort(BYTES, each)).toBe(Status.NO_RESOURCE);
    const socket = owner.accept();
    requestAt(socket);
    socket.sendmsg(closingMessage());
    here.ipc.imports.poll();
    expect(here.ipc.imports.pending).toBe(1);
    expect(here.tryPutShort(BYTES, lost)).toBe(Status.INVALID_ADDR);
    expect(driven(here, key, there)).toBe(Status.INPROGRESS);
    owner.close();
  });

  it('without a closing message receives the request again', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    const owner = playedOwner(key);
    expect(here.tryPutShort(BYTES, key)).toBe(Status.NO_RESOURCE);
    const first = owner.accept();
    const { id } = requestAt(first);
    first.close();
    here.ipc.imports.progress();
    expect(requestAt(owner.accept()).id).toBe(id);
    owner.close();
  });
});

describe('a wait for memory', () => {
  it('ends with the reply of the owner, although no time passes', async () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock });
    const key = here.unpack(there.allocate(64));
    asProcesses();
    expect(here.tryPutShort(BYTES, key)).toBe(Status.NO_RESOURCE);
    let isAwake = false;
    const wait = here.iface.wait(60e9).then(() => {
      isAwake = true;
    });
    for (let turn = 0; turn < ROUNDS && !isAwake; turn++) await setImmediate();
    expect([isAwake, here.ipc.imports.pending]).toEqual([true, 0]);
    await wait;
  });

  it('ends when a transfer ends, although the owner does not answer', async () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock });
    const [own, far] = [here.unpack(here.allocate(64)), here.unpack(there.allocate(64))];
    expect(here.tryPutShort(BYTES, own)).toBe(Status.INPROGRESS);
    asProcesses();
    const owner = playedOwner(far);
    expect(here.tryPutShort(BYTES, far)).toBe(Status.NO_RESOURCE);
    let isAwake = false;
    const wait = here.iface.wait(60e9).then(() => {
      isAwake = true;
    });
    for (let turn = 0; turn < ROUNDS && !isAwake; turn++) await setImmediate();
    expect([isAwake, here.ipc.imports.pending]).toEqual([true, 1]);
    await wait;
    owner.close();
  });
});

describe('requests to an owner', () => {
  it('have different ids, and end at their time limit and not before', () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock, config: { GAUDI_IPC_TIMEOUT: '1s' } });
    const blocks = [there.allocate(64), there.allocate(64, { shared: true })];
    asProcesses();
    const keys = blocks.map((block) => here.unpack(block));
    const owner = playedOwner(...keys);
    for (const key of keys) expect(here.tryPutShort(BYTES, key)).toBe(Status.NO_RESOURCE);
    const socket = owner.accept();
    expect(new Set([requestAt(socket).id, requestAt(socket).id]).size).toBe(2);
    clock.advance(1e9);
    here.ipc.imports.progress();
    expect(here.ipc.imports.pending).toBe(2);
    clock.advance(1);
    here.ipc.imports.progress();
    expect(here.ipc.imports.pending).toBe(0);
    owner.close();
  });

  it('that cannot be sent are forgotten', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    playedOwner(key).close();
    for (let i = 0; i < 2; i++) expect(here.tryPutShort(BYTES, key)).toBe(Status.INVALID_ADDR);
    expect([here.ipc.imports.pending, here.ipc.imports.links]).toEqual([0, 0]);
  });

  it('are answered with one descriptor for a handle, and with none otherwise', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    const key = here.unpack(far);
    const owner = playedOwner(key);
    expect(here.tryPutShort(BYTES, key)).toBe(Status.NO_RESOURCE);
    const answers: ((socket: UnixSocket, id: number) => void)[] = [
      (socket, id) => socket.sendmsg(handleMessage(id, new Uint8Array(IPC_HANDLE_BYTES)), [0, 0]),
      (socket, id) => socket.sendmsg(handleMessage(id, new Uint8Array(IPC_HANDLE_BYTES))),
      (socket) => socket.sendmsg(retiredMessage(5), [0]),
      (socket, id) => socket.sendmsg(requestMessage(id, key.packed)),
    ];
    const before = openFileDescriptors();
    for (const answer of answers) {
      const socket = owner.accept();
      answer(socket, requestAt(socket).id);
      // The connection ends, and the request is sent again on another one.
      here.ipc.imports.progress();
      expect(socket.recvmsg(new Uint8Array(8), [])).toBe(0);
      socket.close();
    }
    expect(openFileDescriptors()).toBe(before);
    owner.close();
  });
});

describe('an owner with as many peers as it takes', () => {
  it('turns others away, whose requests are repeated until there is room', () => {
    const clock = new ManualClock();
    const [here, there] = fixture.pair({ clock, config: { GAUDI_IPC_TIMEOUT: '1s' } });
    const key = here.unpack(there.allocate(64));
    asProcesses();
    const path = servicePath(ownIdentity(), key.place.serviceTag);
    const others = Array.from({ length: CHANNEL_PEERS_MAX }, (_, i) => {
      if (i % 16 === 0) for (let round = 0; round < ROUNDS; round++) there.iface.progress();
      return connectUnix(path, SocketType.SEQPACKET);
    });
    for (let round = 0; round < ROUNDS; round++) there.iface.progress();
    const whileFull = driven(here, key, there);
    others.pop()!.close();
    const afterwards = driven(here, key, there);
    for (const other of others) other.close();
    clock.advance(60e9);
    expect([whileFull, afterwards]).toEqual([Status.NO_RESOURCE, Status.INPROGRESS]);
  });
});
