/** A peer that does not speak the protocol of tcp: its first bytes end the connection, also if it waits after fewer bytes than a hello has. */

import { describe, expect, it } from 'vitest';
import { TcpInterfaces } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { Status } from '../../../ucs/type/status.ts';

describe('a peer that does not speak the protocol', () => {
  const net = new TcpInterfaces();

  it.each([
    ['one byte', Buffer.from('R'), /does not use this protocol: its first bytes are "R"/],
    ['a line', Buffer.from('220 ok\n'), /does not use this protocol: its first bytes are "220 "/],
    ['another version', Buffer.from('UCXT\xff\xff', 'latin1'), /uses version 65535 of this protocol/],
    ['the beginning of a key exchange', Buffer.from('UCXS'), /UCX_TCP_SECURITY is none here/],
  ])('is disconnected at %s, on both ends', async (_, bytes, reason) => {
    net.log.allow(reason);
    // The clock stands still: no time limit ends the connection.
    const one = net.open({}, new ManualClock(1e9));
    const endpoint = one.iface.connect(await net.listener((peer) => peer.write(bytes)));
    expect(endpoint.amShort(3, Int32Array.of(1, 2), 2, new Uint8Array(8), 0, 8)).toBe(Status.NO_RESOURCE);
    const client = await net.unauthenticatedPeer(one);
    client.write(bytes);
    await net.until([one], () => one.failed.length === 1 && client.isClosed);
    expect(one.failed).toEqual([{ endpoint, status: Status.UNREACHABLE }]);
    expect(net.log.records.some(({ message }) => reason.test(message))).toBe(true);
  });
});
