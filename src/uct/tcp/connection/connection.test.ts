/** Links between two interfaces, with every order of opening, sending and closing: no message is lost, and nothing leaks. */

import { describe, expect, it } from 'vitest';
import { CountingCompletion } from '../../../../test/contract/uct/uct-fixture.ts';
import { extent } from '../../../../test/fixtures/extent.ts';
import { keyed, keyOf, TcpInterfaces, type TcpSide } from '../../../../test/fixtures/transports/tcp-interfaces.ts';
import { createRandom } from '../../../ucs/sys/random.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { UctEndpoint } from '../../api/iface.ts';
import type { TcpEndpoint } from '../endpoint.ts';

const HEADER = new Int32Array(2);
const PAYLOAD = Uint8Array.from({ length: 3000 }, (_, i) => i & 0xff);

/** Sends numbered messages; returns whether that succeeded. */
function send(endpoint: UctEndpoint, number: number, byteLength: number): boolean {
  HEADER[0] = number;
  HEADER[1] = byteLength;
  const status = endpoint.amShort(1, HEADER, 2, PAYLOAD, 0, byteLength);
  if (status !== Status.NO_RESOURCE) expect(status).toBe(Status.OK);
  return status === Status.OK;
}

function numbersOf({ messages }: TcpSide): number[] {
  return messages.map(({ bytes }) => new Int32Array(bytes.slice(0, 8).buffer)[0]!);
}

const SCHEDULES = extent('GAUDI_UCX_LINK_SCHEDULES', 300, 1000);

describe('links', () => {
  const net = new TcpInterfaces();

  it('lose nothing in hundreds of schedules of opening, sending and closing at both ends', {
    timeout: 120_000,
  }, async () => {
    const random = createRandom(20_240_611);
    for (let schedule = 0; schedule < SCHEDULES; schedule++) {
      const sides = [net.open({ SNDBUF: '4k' }), net.open({ SNDBUF: '4k' })] as const;
      const endpoints: UctEndpoint[][] = [[], []];
      const sent: number[][] = [[], []];
      for (let step = 0; step < 30; step++) {
        const at = random.below(2);
        const own = endpoints[at]!;
        const action = random.below(8);
        if (action === 0 || own.length === 0) own.push(sides[at]!.iface.connect(sides[1 - at]!.iface.address));
        else if (action === 1) own.splice(random.below(own.length), 1)[0]!.close();
        else if (action <= 5) {
          const number = sent[at]!.length;
          if (send(own[random.below(own.length)]!, number, random.below(PAYLOAD.byteLength))) sent[at]!.push(number);
        } else sides[random.below(2)]!.iface.progress();
      }
      await net.until(sides, () => sides.every((side, i) => side.messages.length === sent[1 - i]!.length));
      // The messages of one connection are in order; those of a new one may overtake the last of the previous one.
      for (const [i, side] of sides.entries()) {
        expect(numbersOf(side).sort((left, right) => left - right)).toEqual(sent[1 - i]);
        expect(side.failed).toEqual([]);
      }
      for (const own of endpoints) for (const endpoint of own) endpoint.close();
      const links = endpoints.flat().map((endpoint) => (endpoint as TcpEndpoint).link);
      await net.until(sides, () => links.every(({ state }) => state === 'down'));
      for (const { md, iface } of sides) {
        iface.close();
        md.close();
      }
    }
  });

  it('whose socket accepts only a few bytes at a time deliver everything in order', async () => {
    const config = { SNDBUF: '16k', RCVBUF: '16k' };
    const [one, two] = [net.open(config), net.open(config)];
    const endpoint = one.iface.connect(two.iface.address);
    const source = keyed(one, 2 ** 17).memory;
    source.bytes.forEach((_, i) => {
      source.bytes[i] = (i * 31) & 0xff;
    });
    const target = keyed(two, 2 ** 17).memory;
    const back = keyed(one, 2 ** 17).memory;
    const key = keyOf(two.md, target);
    const all = (memory: typeof source) => [{ memory, offset: 0, byteLength: 2 ** 17 }];
    const puts: CountingCompletion[] = [];
    const zcopies: CountingCompletion[] = [];
    let sent = 0;
    await net.until([one, two], () => {
      if (puts.length < 3) {
        const completion = new CountingCompletion();
        if (endpoint.putZcopy(all(source), 0, key, completion) === Status.INPROGRESS) puts.push(completion);
      }
      const zcopy = new CountingCompletion();
      const entry = { memory: source, offset: sent, byteLength: 2_001 };
      HEADER[0] = sent;
      if (sent < 200 && endpoint.amZcopy!(2, HEADER, 2, [entry], zcopy) === Status.INPROGRESS) {
        zcopies.push(zcopy);
        sent += 1;
      }
      if (sent < 200 && send(endpoint, sent, sent)) sent += 1;
      return sent === 200 && puts.length === 3;
    });
    const get = new CountingCompletion();
    const flush = new CountingCompletion();
    await net.until([one, two], () => endpoint.getZcopy(all(back), 0, key, get) === Status.INPROGRESS);
    expect(endpoint.flush(flush)).toBe(Status.INPROGRESS);
    await net.until([one, two], () => flush.calls === 1 && two.messages.length === 200);
    expect([get.calls, ...puts.map(({ calls }) => calls)]).toEqual([1, 1, 1, 1]);
    expect(zcopies.every(({ calls, failure }) => calls === 1 && failure === Status.OK)).toBe(true);
    expect(numbersOf(two)).toEqual(Array.from({ length: 200 }, (_, i) => i));
    for (const { id, bytes } of two.messages) {
      if (id !== 2) continue;
      const from = new Int32Array(bytes.slice(0, 8).buffer)[0]!;
      expect(Buffer.compare(bytes.subarray(8), source.bytes.subarray(from, from + 2_001))).toBe(0);
    }
    expect(Buffer.compare(target.bytes, source.bytes)).toBe(0);
    expect(Buffer.compare(back.bytes, source.bytes)).toBe(0);
    expect([source.inFlight, target.inFlight, back.inFlight, one.iface.outstanding]).toEqual([0, 0, 0, 0]);
  });

  it('are shared by all endpoints to one interface, until the last is closed', async () => {
    const [one, two] = [net.open(), net.open()];
    const endpoints = Array.from({ length: 50 }, () => one.iface.connect(two.iface.address));
    const links = new Set(endpoints.map((endpoint) => (endpoint as TcpEndpoint).link));
    expect(links.size).toBe(1);
    for (const [i, endpoint] of endpoints.entries()) await net.until([one, two], () => send(endpoint, i, 8));
    const [link] = links;
    for (const endpoint of endpoints.splice(1)) endpoint.close();
    await net.until([one, two], () => two.messages.length === 50);
    expect(link!.state).toBe('up');
    endpoints[0]!.close();
    await net.until([one, two], () => link!.state === 'down');
    // The next endpoint has a new connection.
    const next = one.iface.connect(two.iface.address);
    await net.until([one, two], () => send(next, 50, 8));
    expect((next as TcpEndpoint).link).not.toBe(link);
    await net.until([one, two], () => two.messages.length === 51);
  });
});
