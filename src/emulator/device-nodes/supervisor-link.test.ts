import { fstatSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { close, Errno, memfdCreate, SocketType, type UnixSocket, unixSocketPair } from '../../sys/index.ts';
import { receiveFilter, receiveTree, sendFilter, sendTree } from './supervisor-link.ts';

let [starter, supervisor]: [UnixSocket, UnixSocket] = [undefined!, undefined!];
beforeEach(() => {
  [starter, supervisor] = unixSocketPair(SocketType.SEQPACKET);
});
afterEach(() => {
  starter.close();
  supervisor.close();
});

const inode = (fd: number): number => fstatSync(fd).ino;

it('a supervisor gets the tree with its descriptors, then the filter', () => {
  const files = ['server', 'fuse', 'listener'].map((name) => memfdCreate(name));
  const [server, fuse, listener] = files as [number, number, number];
  const tree = { device: '0:52', nodes: [{ name: 'accel0', ino: 7, control: false, major: 261, minor: 0 }] };
  const disguised = [{ device: '0:53', type: 0x6265_6572 }];
  sendTree(starter, tree, [server, fuse]);
  sendFilter(starter, { listener, disguised });
  const received = receiveTree(supervisor)!;
  const filter = receiveFilter(supervisor)!;
  expect([received.tree, filter.disguised]).toEqual([tree, disguised]);
  const got = [received.server, received.fuse, filter.listener];
  expect(got.map(inode)).toEqual(files.map(inode));
  for (const fd of [...files, ...got]) close(fd);
});

it('a supervisor whose starter has ended gets nothing', () => {
  starter.close();
  expect([receiveTree(supervisor), receiveFilter(supervisor)]).toEqual([undefined, undefined]);
});

it('a supervisor that has ended is an error of the starter', () => {
  supervisor.close();
  expect(() => sendTree(starter, { device: '0:1', nodes: [] }, [0, 0])).toThrow(
    expect.objectContaining({ errno: Errno.EPIPE }),
  );
});
