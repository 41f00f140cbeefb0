/** Endpoints of tcp whose peer reads and does not reply: bounds of operations in flight, frames of long operations, and frames that are held back. */

import { beforeEach, describe, expect, it, vi } from 'vitest';
import { CountingCompletion } from '../../../test/contract/uct/uct-fixture.ts';
import {
  helloTo,
  keyed,
  type RawPeer,
  TcpInterfaces,
  type TcpSide,
} from '../../../test/fixtures/transports/tcp-interfaces.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../api/memory-domain.ts';
import { HostMemory } from '../base/host/memory.ts';
import { packTcpAddress } from './address.ts';
import { Identity, PEER_HELLO_BYTES } from './connect/hello.ts';
import type { TcpEndpoint } from './endpoint.ts';
import { TCP_KEY_BYTES, type TcpKey, TcpKeyTable } from './key.ts';
import {
  FRAME_BODY_BYTES_MAX,
  FrameType,
  GET_HEADER_BYTES,
  GETS_MAX,
  PUT_HEADER_BYTES,
  PUTS_MAX,
  typeOf,
  writeGet,
  writePut,
} from './layout.ts';

const HEADER = Int32Array.of(1, 2);
const BYTES = new Uint8Array(8);
/** Bytes of an operation of two frames. */
const LONG = FRAME_BODY_BYTES_MAX + 64;

const net = new TcpInterfaces();
let side: TcpSide;
let peer: RawPeer;
let endpoint: TcpEndpoint;

beforeEach(async () => {
  side = net.open();
  const identity = new Identity();
  peer = await net.unauthenticatedPeer(side);
  peer.write(helloTo(side, { messageBytesMax: 65_536 }, identity));
  await net.until([side], () => peer.received.byteLength >= PEER_HELLO_BYTES);
  peer.take(PEER_HELLO_BYTES);
  endpoint = endpointTo(identity);
  // Until the heartbeat that a connection begins with has arrived.
  await net.until(
    [side],
    () => endpoint.link.isUp && endpoint.link.transmitter.isEmpty && peer.received.byteLength > 0,
  );
  peer.take(peer.received.byteLength);
});

function endpointTo({ id }: Identity): TcpEndpoint {
  const address = packTcpAddress(id, 1, true, [{ address: '127.0.0.1', family: 4, prefixBits: 8 }]);
  return side.iface.connect(address) as TcpEndpoint;
}

/** Memory that no test touches, with its key. */
function untouched(byteLength: number): { readonly memory: HostMemory; readonly key: TcpKey } {
  const memory = new HostMemory({
    mdName: 'tcp',
    bytes: new Uint8Array(new ArrayBuffer(byteLength)),
    generation: 1,
    allocation: undefined,
    packable: true,
    access: MemAccess.ALL,
  });
  const table = new TcpKeyTable();
  const packed = new Uint8Array(TCP_KEY_BYTES);
  table.pack(memory, packed, 0);
  return { memory, key: table.unpack(packed) };
}

/** The headers of the frames that are queued from now on. */
function headersOf(bytes: number): readonly Int32Array[] {
  const headers: Int32Array[] = [];
  const { transmitter } = endpoint.link;
  const push = transmitter.push.bind(transmitter);
  vi.spyOn(transmitter, 'push').mockImplementation((frame) => {
    headers.push(frame.words.slice(0, bytes / 4));
    return push(frame);
  });
  return headers;
}

describe('puts without an acknowledgement', () => {
  it('are at most 4096, and each is counted', () => {
    const { key } = keyed(side, 64);
    const put = (): Status => endpoint.putShort(BYTES, 0, 8, 0, key);
    const before = endpoint.putsStarted;
    expect([endpoint.fence(), put(), endpoint.fence()]).toEqual([Status.OK, Status.OK, Status.INPROGRESS]);
    expect(endpoint.putsStarted).toBe(before + 1);
    endpoint.link.puts.sent = PUTS_MAX - 1;
    expect([put(), put()]).toEqual([Status.OK, Status.NO_RESOURCE]);
    expect(endpoint.putsStarted).toBe(PUTS_MAX);
  });

  it('are at most 4096 frames, also with one put of two', () => {
    const { memory, key } = untouched(LONG);
    const put = (byteLength: number): Status =>
      endpoint.putZcopy([{ memory, offset: 0, byteLength }], 0, key, new CountingCompletion());
    endpoint.link.puts.sent = PUTS_MAX - 1;
    expect([put(LONG), put(64), put(64)]).toEqual([Status.NO_RESOURCE, Status.INPROGRESS, Status.NO_RESOURCE]);
  });
});

describe('gets without their data', () => {
  it('are at most 64 frames, also with one get of two, and a fence waits for them', () => {
    const { memory, key } = untouched(LONG);
    const get = (byteLength: number): Status =>
      endpoint.getZcopy([{ memory, offset: 0, byteLength }], 0, key, new CountingCompletion());
    expect(endpoint.fence()).toBe(Status.OK);
    for (let i = 0; i < GETS_MAX - 1; i++) expect(get(64)).toBe(Status.INPROGRESS);
    expect(endpoint.fence()).toBe(Status.INPROGRESS);
    expect([get(LONG), get(64), get(64)]).toEqual([Status.NO_RESOURCE, Status.INPROGRESS, Status.NO_RESOURCE]);
  });
});

describe('the frames of a long operation', () => {
  it('that puts have the offsets of their bytes', () => {
    peer.socket.pause();
    const { memory, key } = untouched(100 + LONG);
    const headers = headersOf(PUT_HEADER_BYTES);
    const iov = [{ memory, offset: 0, byteLength: LONG }];
    expect(endpoint.putZcopy(iov, 100, key, new CountingCompletion())).toBe(Status.INPROGRESS);
    const expected = [new Int32Array(PUT_HEADER_BYTES / 4), new Int32Array(PUT_HEADER_BYTES / 4)] as const;
    writePut(expected[0], 0, key.words, 100, FRAME_BODY_BYTES_MAX);
    writePut(expected[1], 0, key.words, 100 + FRAME_BODY_BYTES_MAX, 64);
    expect(headers).toEqual(expected);
  });

  it('that gets have the offsets of their bytes', () => {
    const { memory, key } = untouched(100 + LONG);
    const headers = headersOf(GET_HEADER_BYTES);
    const iov = [{ memory, offset: 0, byteLength: LONG }];
    expect(endpoint.getZcopy(iov, 100, key, new CountingCompletion())).toBe(Status.INPROGRESS);
    const expected = [new Int32Array(GET_HEADER_BYTES / 4), new Int32Array(GET_HEADER_BYTES / 4)] as const;
    writeGet(expected[0], 0, key.words, 100, FRAME_BODY_BYTES_MAX);
    writeGet(expected[1], 0, key.words, 100 + FRAME_BODY_BYTES_MAX, 64);
    expect(headers).toEqual(expected);
  });
});

describe('a corked endpoint', () => {
  /** The type of the first frame that the peer receives for a put. */
  async function putOf(byteLength: number): Promise<number> {
    const { memory, key } = keyed(side, byteLength);
    endpoint.cork();
    endpoint.putZcopy([{ memory, offset: 0, byteLength }], 0, key, new CountingCompletion());
    expect(endpoint.link.transmitter.isEmpty).toBe(false);
    endpoint.uncork();
    await net.until([side], () => peer.received.byteLength >= byteLength);
    const frames = peer.take(peer.received.byteLength);
    return typeOf(new Int32Array(frames.buffer.slice(frames.byteOffset, frames.byteOffset + 4)), 0);
  }

  it('gathers puts of up to 128 KiB in a frame, and not longer ones', async () => {
    expect([await putOf(131_072), await putOf(131_073)]).toEqual([FrameType.PUT_RUN, FrameType.PUT]);
  });

  it('that is uncorked sends at once', () => {
    endpoint.cork();
    endpoint.uncork();
    const { memory, key } = keyed(side, 64);
    const iov = [{ memory, offset: 0, byteLength: 64 }];
    expect(endpoint.putZcopy(iov, 0, key, new CountingCompletion())).toBe(Status.INPROGRESS);
    expect(endpoint.link.transmitter.isEmpty).toBe(true);
  });
});

describe('a message', () => {
  it('has an id without other bits', () => {
    for (const id of [-1, 32, 1.5, Number.NaN]) {
      expect([id, endpoint.amShort(id, HEADER, 2, BYTES, 0, 8)]).toEqual([id, Status.INVALID_PARAM]);
    }
    for (const id of [0, 31]) expect(endpoint.amShort(id, HEADER, 2, BYTES, 0, 8)).toBe(Status.OK);
  });

  it('is at most as long as the peer permits', () => {
    const { memory } = keyed(side, 65_536);
    const send = (byteLength: number): Status =>
      endpoint.amZcopy(1, HEADER, 2, [{ memory, offset: 0, byteLength }], new CountingCompletion());
    expect([send(65_536 - 8), send(65_536 - 7)]).toEqual([Status.INPROGRESS, Status.INVALID_PARAM]);
  });

  it('behind puts is sent again later if a completion starts another put meanwhile', () => {
    const { memory, key } = keyed(side, 64);
    const iov = [{ memory, offset: 0, byteLength: 64 }];
    const behind = (): Status => endpoint.amAfterPuts(1, 2, { pack: () => 8 }, endpoint.putsStarted);
    endpoint.cork();
    const completion = {
      count: 1,
      failure: Status.OK as Status,
      onComplete: () => expect(endpoint.putShort(BYTES, 0, 8, 0, key)).toBe(Status.OK),
    };
    expect(endpoint.amZcopy(1, HEADER, 2, iov, completion)).toBe(Status.INPROGRESS);
    expect([behind(), completion.count, endpoint.putsStarted]).toEqual([Status.NO_RESOURCE, 0, 1]);
    endpoint.uncork();
    expect(behind()).toBe(Status.OK);
  });
});

describe('a closed endpoint', () => {
  it('does not use its link, and connects no other', () => {
    expect(endpoint.link.users).toBe(1);
    endpoint.close();
    endpoint.close();
    expect(endpoint.link.users).toBe(0);
    const identity = new Identity();
    const [closed, open] = [endpointTo(identity), endpointTo(identity)];
    closed.close();
    const { key } = keyed(side, 64);
    expect(closed.amShort(1, HEADER, 2, BYTES, 0, 8)).toBe(Status.CANCELED);
    expect(closed.putShort(BYTES, 0, 8, 0, key)).toBe(Status.CANCELED);
    expect([open.link.state, open.link.users]).toEqual(['idle', 1]);
  });
});
