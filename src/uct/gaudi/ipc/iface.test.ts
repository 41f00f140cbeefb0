/** Interfaces and endpoints of gaudi_ipc: lists of transfers, errors, links between cards, and what progress notices of owners. */

import { statSync } from 'node:fs';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { IpcPeer } from '../../../../test/fixtures/processes/ipc-peer.ts';
import { asProcesses, pattern, useIpcPeers } from '../../../../test/fixtures/transports/ipc-fixture.ts';
import { getNicPorts } from '../../../hlthunk/index.ts';
import { close as closeFd, connectUnix, ownIdentity, SocketType, type UnixSocket } from '../../../sys/index.ts';
import { loadConfig } from '../../../ucs/config/config.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { RKEY_TABLE_KEY_BYTES, RkeyTable } from '../../base/key/rkey-table.ts';
import { PublishedKey } from '../../base/key/rkey-table-reader.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../base/config.ts';
import { servicePath } from './channel-service.ts';
import { GAUDI_IPC_CONFIG_TABLE, GAUDI_IPC_NAME } from './config.ts';
import type { IpcKey } from './key.ts';
import { CHANNEL_MESSAGE_BYTES_MAX, ChannelMessage, readMessage, requestMessage } from './layout.ts';
import { IpcMd } from './md.ts';
import { Registrations } from './registrations.ts';

const fixture = useIpcPeers();

const BYTES = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);

afterEach(() => {
  vi.restoreAllMocks();
});

describe('a list of transfers', () => {
  it('reaches a block behind another one of its arena, and is counted by its direction', async () => {
    const [here, there] = fixture.pair();
    const [first, second] = [there.allocate(4096), there.allocate(4096)];
    const [a, b] = [pattern(4096, 1), pattern(4096, 2)];
    await there.write(first, a);
    await there.write(second, b);
    const key = here.unpack(second);
    expect(key.place.arenaOffset).toBeGreaterThan(0);
    const target = pattern(300, 4);
    expect(await here.get(here.host(target), 0, 300, key, 50)).toBe(Status.OK);
    expect(Buffer.compare(target, b.subarray(50, 350))).toBe(0);
    const source = pattern(100, 3);
    expect(await here.put(here.host(source), 0, 100, key, 50)).toBe(Status.OK);
    b.set(source, 50);
    expect(Buffer.compare(await there.read(second), b)).toBe(0);
    expect(Buffer.compare(await there.read(first), a)).toBe(0);
    expect(here.ipc.channels).toMatchObject([{ puts: 1, bytesPut: 100, gets: 1, bytesGot: 300 }]);
  });
});

describe('a failure', () => {
  it('that explains itself does not report the error of an earlier one', async () => {
    const [here, there] = fixture.pair();
    const [gone, other] = [there.allocate(64), there.allocate(64)];
    const [stale, key] = [here.unpack(gone), here.unpack(other)];
    there.free(gone);
    expect(await here.putShort(BYTES, stale)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toMatchObject({ code: 'ERR_RKEY_STALE' });
    expect(await here.putShort(BYTES, key, 60)).toBe(Status.INVALID_ADDR);
    expect(here.iface.errorOf(Status.INVALID_ADDR)).toBeUndefined();
  });

  it('of a transfer lets progress read at once what the owners have announced', async () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    asProcesses();
    expect(await here.putShort(BYTES, here.unpack(far))).toBe(Status.OK);
    there.ipc.memDereg(far.memory);
    const { cache } = here.ipc.imports;
    here.iface.progress();
    expect(cache.numRegions).toBe(1);
    here.iface.transfers.failures += 1;
    here.iface.progress();
    expect(cache.numRegions).toBe(0);
    there.copy.memFree(far.allocated);
  });
});

describe('the path to a card', () => {
  it('has the share of the links between the cards that are up', () => {
    const [here, there] = fixture.pair();
    const [near, far] = [here.unpack(here.allocate(64)), here.unpack(there.allocate(64))];
    expect(here.iface.remotePath(near)).toBeUndefined();
    expect(here.iface.remotePath(far)).toEqual({ bandwidthShare: 1, note: '3 of 3 links up' });
    const { device } = here.shared.cards[0]!;
    const { busId } = there.shared.cards[0]!.device;
    const { port } = getNicPorts(device, device.info, fixture.node)!.find(({ peer }) => peer?.busId === busId)!;
    fixture.node.inject(device.minor, { kind: 'link-down', port });
    expect(here.iface.remotePath(far)).toEqual({ bandwidthShare: 2 / 3, note: '2 of 3 links up' });
  });
});

describe('the socket of an owner', () => {
  it('can be used by its user only', () => {
    const [here, there] = fixture.pair();
    const { serviceTag } = here.unpack(there.allocate(64)).place;
    expect(statSync(servicePath(ownIdentity(), serviceTag)).mode & 0o777).toBe(0o600);
  });
});

describe('an owner', () => {
  /** A peer that a test plays, connected to the owner of memory. */
  function connected(there: IpcPeer, { serviceTag }: IpcKey['place']): UnixSocket {
    const socket = connectUnix(servicePath(ownIdentity(), serviceTag), SocketType.SEQPACKET);
    serve(there);
    return socket;
  }

  function serve(there: IpcPeer): void {
    for (let round = 0; round < 128; round++) there.iface.progress();
  }

  it('disconnects a peer that sends a descriptor with its request', () => {
    const [here, there] = fixture.pair();
    const far = there.allocate(64);
    const [right, wrong] = [0, 1].map(() => connected(there, here.unpack(far).place));
    right!.sendmsg(requestMessage(1, far.key));
    wrong!.sendmsg(requestMessage(1, far.key), [0]);
    serve(there);
    const fds: number[] = [];
    const buffer = new Uint8Array(CHANNEL_MESSAGE_BYTES_MAX);
    const received = [right!, wrong!].map((socket) => socket.recvmsg(buffer, fds));
    for (const fd of fds) closeFd(fd);
    for (const socket of [right!, wrong!]) socket.close();
    expect([received[0]! > 0, received[1], fds.length]).toEqual([true, 0, 1]);
  });

  it('notifies its peers before it closes', () => {
    const [here, there] = fixture.pair();
    const socket = connected(there, here.unpack(there.allocate(64)).place);
    there.ipc.close();
    const buffer = new Uint8Array(CHANNEL_MESSAGE_BYTES_MAX);
    const messages: (ChannelMessage | undefined)[] = [];
    for (let length = socket.recvmsg(buffer, []); length > 0; length = socket.recvmsg(buffer, [])) {
      messages.push(readMessage(buffer.subarray(0, length))?.kind);
    }
    socket.close();
    expect(messages).toEqual([ChannelMessage.RETIRED, ChannelMessage.CLOSING]);
  });
});

describe('a key', () => {
  it('with an invalid payload is released when it is rejected', () => {
    const here = fixture.open();
    const table = new RkeyTable(GAUDI_IPC_NAME);
    const { memory } = here.allocate(64);
    table.publish(memory, new Int32Array([-1, -1, -1, -1, -1, -1, -1, -1]));
    const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
    table.pack(memory, packed, 0);
    const release = vi.spyOn(PublishedKey.prototype, 'release');
    expect(() => here.ipc.rkeyUnpack(packed)).toThrow(expect.objectContaining({ code: 'ERR_RKEY_FORGED' }));
    expect(release).toHaveBeenCalledTimes(1);
    table.close();
  });

  it('is not made for memory of a card that was lost', () => {
    const here = fixture.open();
    fixture.log.allow(/device_reset/);
    const { memory } = here.allocate(64);
    const { device } = here.shared.cards[0]!;
    fixture.node.inject(device.minor, { kind: 'hard-reset' });
    device.events.receive();
    const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
    expect(() => here.ipc.mkeyPack(memory, packed, 0)).toThrow(
      expect.objectContaining({ code: 'ERR_GAUDI_DEVICE_BUSY' }),
    );
    expect(packed).toEqual(new Uint8Array(RKEY_TABLE_KEY_BYTES));
  });
});

describe('a memory domain', () => {
  it('hears of resets of its cards until it is closed', () => {
    const here = fixture.open();
    fixture.log.allow(/device_reset/);
    const config = loadConfig([GAUDI_COPY_CONFIG_TABLE, GAUDI_IPC_CONFIG_TABLE]);
    const services = { log: fixture.log.log, clock: systemClock, config };
    const [open, closed] = [new IpcMd(here.shared, services), new IpcMd(here.shared, services)];
    closed.close();
    const loseCard = vi.spyOn(Registrations.prototype, 'loseCard');
    const card = here.shared.cards[0]!;
    fixture.node.inject(card.device.minor, { kind: 'hard-reset' });
    card.device.events.receive();
    // Once for the domain of the peer, and once for the one that is open.
    expect(loseCard.mock.calls).toEqual([[card], [card]]);
    open.close();
  });
});
