/** The arguments of `node fault`: spellings that are taken, and messages that name what is wrong. */

import { describe, expect, it } from 'vitest';
import { createEmulatedNode } from '../../emulator/index.ts';
import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import { faultOf, faultSentence } from './fault.ts';

describe('faultOf', () => {
  it('takes capitals and underscores', () => {
    expect(faultOf('link_down', { port: '3' })).toEqual({ kind: 'link-down', port: 3 });
    expect(faultOf('HARD_RESET', {})).toEqual({ kind: 'hard-reset' });
    expect(faultOf('status', { status: 'in_reset' })).toEqual({ kind: 'status', status: HL_DEVICE_STATUS.IN_RESET });
  });

  it.each([
    ['status', {}, /argument status must be one of OPERATIONAL, IN_RESET, .*, got nothing$/],
    ['status', { status: 'FOO' }, /argument status must be one of OPERATIONAL, .*, got "FOO"$/],
    ['ioctl', { ioctl: 'cs', errno: 'EFOO' }, /argument errno must be a name such as EIO, or a number, got "EFOO"$/],
    ['linkdown', {}, /argument kind must be one of .*link-down.*, got "linkdown"$/],
  ] as const)('refuses %s %o', (kind, given, message) => {
    expect(() => faultOf(kind, given)).toThrow(message);
  });
});

it('a link that is not named, or twice, is refused in words', () => {
  const node = createEmulatedNode({ cards: 2, dmaThreads: 0 });
  const rule = 'argument link must be selected either by port, or by peer for all links to that card';
  expect(() => node.inject(0, { kind: 'link-down' })).toThrow(`${rule}, got nothing`);
  expect(() => node.inject(0, { kind: 'link-up', port: 3, peer: 1 })).toThrow(`${rule}, got "port 3 and peer 1"`);
  node.close();
});

it.each([
  [undefined, 'operational', 'card 0 (accel0, b): was reset'],
  [7, 'Operational', 'card 0 (accel0, b): its reset is pending until process 7 has closed it, for 30 s at most'],
  [7, 'In reset', 'card 0 (accel0, b): is in reset until process 7 has closed it'],
])('a reset of a card that process %s has open, whose state is %s then', (pid, status, sentence) => {
  const cards = [{ index: 0, minor: 0, busId: 'b', entry: undefined, absence: undefined }];
  const node = { attribute: () => status, ownerOf: () => pid };
  expect(faultSentence(node, cards, 0, { kind: 'hard-reset' })).toBe(sentence);
});
