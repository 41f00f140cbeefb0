/** What a process other than a supervisor may send to a node server. */

import { afterEach, beforeEach, expect, it } from 'vitest';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import {
  close,
  memfdCreate,
  openFileDescriptors,
  SocketType,
  type UnixSocket,
  unixSocketPair,
} from '../../sys/index.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { createEmulatedNode, type EmulatedNode } from '../emulated-node.ts';
import { DeviceTree } from './device-tree.ts';
import { ForwardedCalls } from './forwarded-calls.ts';

let node: EmulatedNode;
let peer: UnixSocket;
let calls: ForwardedCalls;
beforeEach(() => {
  node = createEmulatedNode({ cards: 1 });
  const [own, other] = unixSocketPair(SocketType.SEQPACKET);
  peer = other;
  const log = new LimitedLog(createTestLog().log, systemClock);
  calls = new ForwardedCalls(own, { node, tree: new DeviceTree(node), log });
});
afterEach(() => {
  calls.close();
  peer.close();
  node.close();
});

it('nothing is served before it arrives, and after the end of the supervisor', () => {
  expect(calls.serve()).toBe(true);
  peer.close();
  expect(calls.serve()).toBe(false);
});

it.each([
  ['without a descriptor', () => []],
  ['with one of another kind', () => [memfdCreate('other')]],
  ['with several', () => [memfdCreate('one'), memfdCreate('two')]],
])('a first message %s ends the connection, and leaves no descriptor', (_, make) => {
  const fds = make();
  peer.sendmsg(new Uint8Array(1), fds);
  for (const fd of fds) close(fd);
  const before = openFileDescriptors();
  expect(calls.serve()).toBe(false);
  expect(openFileDescriptors()).toBe(before);
});
