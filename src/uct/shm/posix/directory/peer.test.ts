/** The sender's side of a directory, and the pipes: who is woken, what is given back, and how the end of a process is found. */

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, renameSync, unlinkSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../../../test/fixtures/leak-check.ts';
import { withoutDescriptors } from '../../../../../test/fixtures/processes/no-descriptors.ts';
import { SEGMENT_PROBES } from '../../../../../test/fixtures/transports/own-segments.ts';
import { type Station, type StationSender, Stations } from '../../../../../test/fixtures/transports/posix-station.ts';
import { isProcessStopped, mkfifo, ownIdentity, PollEvent, packIdentity, pollNow } from '../../../../sys/index.ts';
import { Status } from '../../../../ucs/type/status.ts';
import { SEGMENT_FOLDER, segmentPath } from '../../../base/key/segment-name.ts';
import { Attention, DirectoryWord, SLOTS, SlotState, SlotWord, slotAt, wakePath } from '../layout.ts';
import { Peer, WakeLine, WakePipe } from '../peer.ts';

expectNoLeaks(SEGMENT_PROBES);
const stations = new Stations();

function ends(): { readonly from: Station; readonly to: Station } {
  return { from: stations.station(), to: stations.station() };
}

function changesOf(to: Station): number {
  return to.words[DirectoryWord.CHANGES]!;
}

describe('a sender', () => {
  it('does not use a directory of another version, or one whose pipe is closed', () => {
    const { to } = ends();
    const { packedName } = to.directory.segment;
    to.words[DirectoryWord.VERSION]! += 1;
    expect(() => Peer.attach(packedName, SEGMENT_FOLDER)).toThrow(
      /the peer uses version \d+ of posix, this process \d+/,
    );
    to.words[DirectoryWord.VERSION]! -= 1;
    to.pipe.close();
    expect(() => Peer.attach(packedName, SEGMENT_FOLDER)).toThrow('the process of the peer has ended');
  });

  it('finds the end of the process, and of the interface', () => {
    const { from, to } = ends();
    const sender = stations.sender(from, to);
    // Before it announces a ring, the words of its slot are of no meaning.
    expect(sender.peer.claim()).toBe(true);
    to.words[slotAt(0) + SlotWord.STATE] = SlotState.REFUSED;
    expect(sender.peer.check()).toBe(Status.OK);
    sender.announce();
    expect(sender.peer.check()).toBe(Status.OK);
    to.words[slotAt(0) + SlotWord.STATE] = SlotState.REFUSED;
    expect(sender.peer.check()).toBe(Status.CONNECTION_RESET);
    to.words[slotAt(0) + SlotWord.STATE] = SlotState.READY;
    to.pipe.close();
    expect(sender.peer.check()).toBe(Status.ENDPOINT_TIMEOUT);
    to.words[DirectoryWord.ATTENTION] = Attention.CLOSED;
    expect(sender.peer.check()).toBe(Status.CONNECTION_RESET);
  });

  it('announces its ring in its slot, counts a change, and wakes a receiver that sleeps', () => {
    const { from, to } = ends();
    const [first, second] = [stations.sender(from, to).announce(), stations.sender(from, to)];
    const before = changesOf(to);
    to.directory.setSleeping(true);
    second.announce();
    expect([changesOf(to), to.wakeUps(), to.words[DirectoryWord.ATTENTION]]).toEqual([before + 1, 1, Attention.AWAKE]);
    const at = (slotAt(1) + SlotWord.NAME) * 4;
    expect(to.directory.segment.bytes.slice(at, at + 32)).toEqual(second.ring.segment.packedName);
    expect([0, 1, 2].map((slot) => to.slotWord(slot, SlotWord.STATE))).toEqual([1, 1, 0]);
    expect(to.slotWord(1, SlotWord.OWNER)).toBe(process.pid);
    expect(first.peer.place).toBe('another thread of this process');
  });

  it('without a slot has the receiver look for dead ones, and takes one that will be free', () => {
    const { from, to } = ends();
    for (let slot = 0; slot < SLOTS; slot++) to.words[slotAt(slot) + SlotWord.OWNER] = 2 ** 30;
    const late = stations.sender(from, to);
    const before = changesOf(to);
    to.directory.setSleeping(true);
    expect(late.peer.claim()).toBe(false);
    expect(to.words[DirectoryWord.SCARCE]).toBe(1);
    expect([changesOf(to), to.wakeUps()]).toEqual([before + 1, 1]);
    expect(late.peer.announce(late.ring.segment.packedName)).toBe(Status.NO_RESOURCE);
    to.words[slotAt(700) + SlotWord.STATE] = SlotState.CLOSED;
    expect(late.peer.claim()).toBe(true);
    to.words[slotAt(700) + SlotWord.STATE] = SlotState.EMPTY;
  });

  it('rings unless its ring is polled, whatever is in the slots of others', () => {
    const { from, to } = ends();
    const [, second] = [stations.sender(from, to).announce(), stations.sender(from, to).announce()];
    const summary = (): number => {
      second.peer.messagePublished();
      const word = to.words[DirectoryWord.DOORBELL_SUMMARY]!;
      const slots = to.words[DirectoryWord.DOORBELLS]!;
      to.words[DirectoryWord.DOORBELL_SUMMARY] = 0;
      to.words[DirectoryWord.DOORBELLS] = 0;
      return word === 0 ? 0 : slots;
    };
    to.words[slotAt(0) + SlotWord.POLLED] = 1;
    expect(summary()).toBe(1 << 1);
    to.words[slotAt(0) + SlotWord.POLLED] = 0;
    to.words[slotAt(1) + SlotWord.POLLED] = 1;
    expect(summary()).toBe(0);
    to.words[slotAt(1) + SlotWord.POLLED] = 0;
  });

  it('wakes a receiver that sleeps, and no other one does it again', () => {
    const { from, to } = ends();
    const senders = [stations.sender(from, to).announce(), stations.sender(from, to).announce()];
    const publish = (): Status[] => senders.map(({ peer }) => peer.messagePublished());
    expect([publish(), to.wakeUps()]).toEqual([[Status.OK, Status.OK], 0]);
    to.directory.setSleeping(true);
    expect([publish(), to.wakeUps()]).toEqual([[Status.OK, Status.OK], 1]);
  });

  it('gives a claimed slot back, or leaves an announced ring to the receiver', () => {
    const { from, to } = ends();
    const [claimed, announced] = [stations.sender(from, to), stations.sender(from, to)];
    claimed.peer.claim();
    announced.announce();
    expect(claimed.peer.retire()).toBe(false);
    expect([to.slotWord(0, SlotWord.OWNER), to.slotWord(0, SlotWord.STATE)]).toEqual([0, SlotState.EMPTY]);
    const before = changesOf(to);
    to.directory.setSleeping(true);
    expect(announced.peer.retire()).toBe(true);
    expect([changesOf(to), to.wakeUps()]).toEqual([before + 1, 1]);
    expect(to.slotWord(1, SlotWord.STATE)).toBe(SlotState.CLOSED);
    expect(announced.peer.retire()).toBe(false);
  });

  it('removes its ring itself if the process of the receiver has ended', () => {
    const { from, to } = ends();
    const sender = stations.sender(from, to).announce();
    to.pipe.close();
    expect(sender.peer.retire()).toBe(false);
  });

  it('can tell after its end whether the receiver has ended', async () => {
    const { from, to } = ends();
    const sender = stations.sender(from, to);
    const hasGone = sender.peer.goneProbe();
    sender.close();
    expect([hasGone(), hasGone()]).toEqual([false, false]);
    expect(await withoutDescriptors(hasGone)).toBe(false);
    to.pipe.close();
    expect(hasGone()).toBe(true);
  });
});

describe('the process of a receiver', () => {
  /** Gives the directory of a station, which has a path, another name. */
  function renamed(station: Station, pidNamespace: number, pid: number): Uint8Array {
    const { packedName } = station.directory.segment;
    const name = packedName.slice();
    packIdentity({ ...ownIdentity(), pidNamespace, pid }, name, 0);
    const [path, wake] = [segmentPath(name), wakePath(segmentPath(name))];
    renameSync(segmentPath(packedName), path);
    renameSync(wakePath(segmentPath(packedName)), wake);
    stations.closing({
      close: () => {
        for (const each of [path, wake]) unlinkSync(each);
      },
    });
    return name;
  }

  async function stoppedProcess(): Promise<ChildProcess & { readonly pid: number }> {
    const child = spawn('sleep', ['100']);
    stations.closing({ close: () => child.kill('SIGKILL') });
    child.kill('SIGSTOP');
    while (!isProcessStopped(child.pid!)) await new Promise(setImmediate);
    return child as ChildProcess & { readonly pid: number };
  }

  it('is stopped or not if it is of the same pid namespace, and unknown otherwise', async () => {
    const own = ownIdentity().pidNamespace;
    const { pid } = await stoppedProcess();
    const names = [own, own + 1].map((namespace) => renamed(stations.station(true), namespace, pid));
    const peers = names.map((name) => stations.closing(Peer.attach(name, SEGMENT_FOLDER)));
    expect(peers.map(({ isStopped }) => isStopped)).toEqual([true, false]);
    expect(peers.map(({ place }) => place)).toEqual([`process ${pid}`, `process ${pid}`]);
  });

  it('of another pid namespace is not this one, though its number is the same', () => {
    const { pidNamespace, pid } = ownIdentity();
    const name = renamed(stations.station(true), pidNamespace + 1, pid);
    const peer = stations.closing(Peer.attach(name, SEGMENT_FOLDER));
    expect(peer.place).toBe(`process ${pid}`);
  });
});

describe('a pipe', () => {
  const path = `${SEGMENT_FOLDER}/posix-peer-test.${process.pid}`;

  it('without a path is removed at once, and is open until it is closed', () => {
    const pipe = new WakePipe(path, false, () => undefined);
    expect([existsSync(path), pipe.sharedFd > 0]).toEqual([false, true]);
    pipe.close();
    pipe.close();
  });

  it('with a path is removed when it is closed, or when the process exits', () => {
    const pipe = new WakePipe(path, true, () => undefined);
    // Files of other tests in this process, if there are any, share the listener.
    const watchers = process.listeners('exit').map(({ name }) => name);
    expect([existsSync(path), pipe.sharedFd]).toEqual([true, 0]);
    expect(watchers).toContain('removeAll');
    pipe.close();
    expect(existsSync(path)).toBe(false);
  });

  it('that cannot be watched is closed and removed', async () => {
    for (const left of [0, 1]) {
      await withoutDescriptors(() => {
        expect(() => new WakePipe(path, true, () => undefined)).toThrow('EMFILE');
      }, left);
      expect(existsSync(path)).toBe(false);
    }
  });

  it('that has woken its owner is empty', async () => {
    let wakes = 0;
    const pipe = new WakePipe(path, false, () => {
      wakes += 1;
    });
    const line = WakeLine.open({ path, pid: process.pid, fd: pipe.sharedFd })!;
    for (let i = 0; i < 300; i++) line.signal();
    while (wakes === 0) await new Promise(setImmediate);
    expect([wakes, pollNow(pipe.sharedFd, PollEvent.IN) & PollEvent.IN]).toEqual([1, 0]);
    pipe.close();
    expect(line.alive).toBe(false);
    line.close();
  });

  it('has no owner if it has no reader, is missing, or is another file', () => {
    mkfifo(path);
    expect(WakeLine.open({ path, pid: 0, fd: 0 })).toBeUndefined();
    unlinkSync(path);
    expect(WakeLine.open({ path, pid: 0, fd: 0 })).toBeUndefined();
    writeFileSync(path, 'text');
    expect(WakeLine.open({ path, pid: 0, fd: 0 })).toBeUndefined();
    unlinkSync(path);
  });

  it('is not used through a line that is closed, whose descriptor is of another file by then', () => {
    const { from, to } = ends();
    const sender: StationSender = stations.sender(from, to);
    const file = { path: wakePath(to.directory.segment.path), pid: process.pid, fd: to.pipe.sharedFd };
    const line = WakeLine.open(file)!;
    line.close();
    line.close();
    const other = WakeLine.open(file)!;
    line.signal();
    expect([line.alive, to.wakeUps()]).toEqual([false, 0]);
    other.signal();
    expect([other.alive, to.wakeUps()]).toEqual([true, 1]);
    other.close();
    sender.close();
  });
});
