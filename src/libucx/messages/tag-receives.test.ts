/** Receives of tagged messages over a fake libucp. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { FakeCore } from '../../../test/fixtures/libucp/fake-core.ts';
import { FakeLibucp, WORKER } from '../../../test/fixtures/libucp/fake-libucp.ts';
import { TAG_MASK_FULL, type Tag } from '../../api/contract/request.ts';
import type { TagMessage } from '../../api/contract/worker.ts';
import { addressOf, viewAt } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { UcxCall } from '../mem/remote-key.ts';
import type { UcpRequest } from '../request/request.ts';
import { TagReceives } from './tag-receives.ts';

const TAG = 2n ** 63n + 9n;
const MASK = 0xffn;

const ucp_tag_recv_nbx = vi.fn((..._values: unknown[]) => 0);
const ucp_tag_msg_recv_nbx = vi.fn((..._values: unknown[]) => 0);
const ucp_tag_probe_nb = vi.fn((_worker: number, _tag: unknown, _mask: unknown, _remove: number, info: number) => {
  const view = new DataView(viewAt(info, UCP_TAG_RECV_INFO.size));
  view.setBigUint64(UCP_TAG_RECV_INFO.at.sender_tag, TAG, true);
  view.setBigUint64(UCP_TAG_RECV_INFO.at.length, 24n, true);
  return 0x4400;
});
let libucp: FakeLibucp;
let fake: FakeCore;
let receives: TagReceives;

beforeEach(() => {
  for (const mock of [ucp_tag_recv_nbx, ucp_tag_msg_recv_nbx, ucp_tag_probe_nb]) mock.mockClear();
  libucp = new FakeLibucp({ ucp_tag_recv_nbx, ucp_tag_msg_recv_nbx, ucp_tag_probe_nb } as never);
  ucp_tag_recv_nbx.mockImplementation(() => libucp.request());
  ucp_tag_msg_recv_nbx.mockImplementation(() => libucp.request());
  fake = new FakeCore(libucp);
  receives = new TagReceives(fake.core);
});
afterEach(() => fake[Symbol.dispose]());

const bytes = new Uint8Array(64);
const call = (isImmediate = true): UcxCall =>
  ({ local: bytes, localOffset: 8, byteLength: 32, params: undefined, isImmediate }) as unknown as UcxCall;

describe('a receive', () => {
  it.each([true, false])('waits for its tag in its memory; without a request: %s', (isImmediate) => {
    const request = receives.receive(call(isImmediate), TAG, MASK) as UcpRequest;
    expect(ucp_tag_recv_nbx.mock.calls[0]!.slice(0, 5)).toEqual([WORKER, addressOf(bytes) + 8, 32, TAG, MASK]);
    expect([request.wantedTag, request.wantedMask, request.pinned, request.byteLength]).toEqual([TAG, MASK, bytes, 32]);
    libucp.end(libucp.inUse[0]!, Status.OK, { tag: TAG, byteLength: 24 });
    fake.core.requests.polling.progress(1);
    expect([request.status, request.senderTag, request.receivedBytes]).toEqual([Status.OK, TAG, 24]);
  });

  it('that fails in its call has no request', () => {
    ucp_tag_recv_nbx.mockReturnValue(Status.NO_MEMORY);
    expect(receives.receive(call(), 1n, TAG_MASK_FULL)).toBe(Status.NO_MEMORY);
    expect(fake.core.requests.inUse).toBe(0);
  });

  it('that matches at once releases its request of libucp', () => {
    ucp_tag_recv_nbx.mockImplementation(() => libucp.request(Status.OK, { tag: TAG, byteLength: 24 }));
    expect(receives.receive(call(false), TAG, MASK)).toBe(Status.OK);
    expect([libucp.inUse, fake.core.requests.inUse]).toEqual([[], 0]);
  });

  it.each([
    [2n ** 64n, MASK],
    [-1n, MASK],
    [1.5, MASK],
    [1n, 2n ** 64n],
  ] as unknown as [Tag, Tag][])('of tag %s with mask %s is refused before libucp has it', (tag, mask) => {
    expect(() => receives.receive(call(), tag, mask)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect(() => receives.probe(tag, mask, false)).toThrow(expect.objectContaining({ code: 'ERR_INVALID_PARAM' }));
    expect([ucp_tag_recv_nbx.mock.calls, ucp_tag_probe_nb.mock.calls]).toEqual([[], []]);
  });

  it('beyond the limit of requests is refused before libucp has it', () => {
    while (fake.core.requests.beginComposite('list') !== undefined);
    expect(receives.receive(call(), 1n, TAG_MASK_FULL)).toBe(Status.NO_RESOURCE);
    expect(ucp_tag_recv_nbx).not.toHaveBeenCalled();
  });
});

describe('a probed message', () => {
  it('that was taken out is received once', () => {
    const message = receives.probe(TAG, MASK, true)!;
    expect([message.senderTag, message.byteLength]).toEqual([TAG, 24]);
    expect(ucp_tag_probe_nb.mock.calls[0]![3]).toBe(1);
    const request = receives.receiveMessage(call(), message) as UcpRequest;
    expect(ucp_tag_msg_recv_nbx.mock.calls[0]!.slice(0, 4)).toEqual([WORKER, addressOf(bytes) + 8, 32, 0x4400]);
    expect(request.isCompleted).toBe(false);
    expect(() => receives.receiveMessage(call(), message)).toThrow(/was not received yet/);
    expect(ucp_tag_msg_recv_nbx).toHaveBeenCalledTimes(1);
  });

  it('that was only looked at, or is another object, cannot be received', () => {
    const message = receives.probe(TAG, MASK, false)!;
    expect(ucp_tag_probe_nb.mock.calls[0]![3]).toBe(0);
    for (const other of [message, { senderTag: TAG, byteLength: 24, handle: 0x4400 } as unknown as TagMessage]) {
      expect(() => receives.receiveMessage(call(), other)).toThrow(/tagProbe/);
    }
  });

  it('stays to be received if no request is free', () => {
    const message = receives.probe(TAG, MASK, true)!;
    const held = [];
    for (let one = fake.core.requests.beginComposite('list'); one !== undefined; ) {
      held.push(one);
      one = fake.core.requests.beginComposite('list');
    }
    expect(receives.receiveMessage(call(), message)).toBe(Status.NO_RESOURCE);
    fake.core.requests.discard(held[0]!);
    expect(typeof receives.receiveMessage(call(), message)).not.toBe('number');
  });

  it('is none if none has come', () => {
    ucp_tag_probe_nb.mockReturnValueOnce(0);
    expect(receives.probe(TAG, MASK, true)).toBeUndefined();
  });
});
