/** Peers that connect and vanish at once, over scripted calls. */

import { expect, it, vi } from 'vitest';
import { useScript } from '../../../../test/fixtures/processes/scripted-calls.ts';
import { script } from '../../../../test/fixtures/processes/scripted-libc.ts';
import { helloTo, type RawPeer, TcpInterfaces } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { Errno } from '../../../sys/index.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';
import { unpackTcpAddress } from '../address.ts';
import { Identity, PEER_HELLO_BYTES } from './hello.ts';

vi.mock('../../../sys/base/libc.ts', async (original) => {
  const { scriptedLibc } = await import('../../../../test/fixtures/processes/scripted-libc.ts');
  return scriptedLibc(await original());
});

useScript();
const net = new TcpInterfaces();

it('a link whose peer has connected at the same time, and has vanished, is connected again', async () => {
  const clock = new ManualClock(1e9);
  const side = net.open({}, clock);
  const { id } = unpackTcpAddress(side.iface.address)!;
  let identity = new Identity();
  // The connection of the peer is used.
  while (Buffer.compare(identity.id, id) >= 0) identity = new Identity();
  const peers: RawPeer[] = [];
  const endpoint = side.iface.connect(await net.listener((peer) => peers.push(peer), identity.id));
  expect(endpoint.amShort(3, Int32Array.of(1, 2), 2, new Uint8Array(8), 0, 8)).toBe(Status.NO_RESOURCE);
  await net.until([side], () => (peers[0]?.received.byteLength ?? 0) >= PEER_HELLO_BYTES);
  const arriving = await net.unauthenticatedPeer(side);
  // The reply is the next that is sent.
  script('send', -Errno.EPIPE);
  arriving.write(helloTo(side, {}, identity));
  await net.until([side], () => arriving.isClosed && peers[0]!.isClosed);
  expect(peers).toHaveLength(1);
  clock.advance(1e9);
  await net.until([side], () => peers.length === 2);
  expect(side.failed).toEqual([]);
});

it('a peer that vanishes before it is accepted leaves no socket', async () => {
  const side = net.open({}, new ManualClock(1e9));
  expect(side.iface.address).toBeDefined();
  script('getpeername', -Errno.ENOTCONN);
  const peer = await net.unauthenticatedPeer(side);
  await net.until([side], () => peer.isClosed);
  expect(net.log.records.map(({ message }) => message)).toContainEqual(
    expect.stringMatching(/closed a new connection: .*not connected/),
  );
});
