import { afterEach, describe, expect, it } from 'vitest';
import { type AwaitedPeer, IdlePeers, type OwnWorker } from './idle-peers.ts';

interface FakeWorker extends OwnWorker {
  progressCalls: number;
}

const open: IdlePeers[] = [];
afterEach(() => {
  for (const peers of open.splice(0)) peers.close();
});

/** A worker that waits for peers, and what it says about them. */
class Waiting {
  #nowMs = 0;
  readonly warnings: string[] = [];
  awaited: AwaitedPeer[] = [];
  readonly #peers: IdlePeers = this.#make({ isManual: false, progressCalls: 0, shownId: 'own' });

  /** Makes a worker of this thread. */
  own(id: string, isManual: boolean): FakeWorker {
    const worker = { isManual, progressCalls: 0, shownId: `id of ${id}` };
    this.#make(worker).announce(id);
    return worker;
  }

  /** Waits for a peer that may be in another process. */
  await(id: string, peer: Partial<AwaitedPeer> = {}): void {
    const other = { isManual: false, owesAnswer: false, place: undefined, ageMs: 0 };
    this.awaited.push({ id, shownId: `id of ${id}`, ...other, ...peer });
  }

  /** Looks after a time. */
  after(seconds: number): void {
    this.#nowMs += seconds * 1000;
    this.awaited = this.awaited.map((peer) => ({ ...peer, ageMs: peer.ageMs + seconds * 1000 }));
    this.#peers.look(this.#nowMs);
  }

  #make(worker: OwnWorker): IdlePeers {
    const peers = new IdlePeers(
      worker,
      () => this.awaited,
      (message) => this.warnings.push(message),
    );
    open.push(peers);
    return peers;
  }
}

describe('an idle peer', () => {
  it('of this thread is reported once, after a second without its progress', () => {
    const waiting = new Waiting();
    waiting.own('a', true);
    waiting.await('a');
    waiting.after(0);
    expect(waiting.warnings).toEqual([]);
    waiting.after(0.5);
    expect(waiting.warnings).toEqual([]);
    waiting.after(0.5);
    expect(waiting.warnings).toEqual([
      expect.stringMatching(/^an operation waits for worker id of a \(this process\), which makes no progress: /),
    ]);
    waiting.after(5);
    expect(waiting.warnings.length).toBe(1);
  });

  it('of this thread is not reported while it makes progress, or if its progress is automatic', () => {
    const waiting = new Waiting();
    const manual = waiting.own('a', true);
    waiting.own('b', false);
    waiting.await('a');
    waiting.await('b', { isManual: true, owesAnswer: true });
    for (let second = 0; second < 5; second++) {
      waiting.after(1);
      manual.progressCalls += 1;
    }
    expect(waiting.warnings).toEqual([]);
  });

  it('of another process is reported if it is manual and owes a reply, with its process', () => {
    const waiting = new Waiting();
    waiting.await('a', { isManual: true, owesAnswer: true, place: 'process 12' });
    waiting.await('b', { isManual: true });
    waiting.await('c', { owesAnswer: true });
    waiting.await('d', { isManual: true, owesAnswer: true });
    waiting.after(0);
    expect(waiting.warnings).toEqual([]);
    waiting.after(1);
    expect(waiting.warnings.map((warning) => /waits for worker id of (.*), which/.exec(warning)?.[1])).toEqual([
      'a (process 12)',
      'd (another process)',
    ]);
    waiting.after(1);
    expect(waiting.warnings.length).toBe(2);
  });

  it('is not told again and again, however many there are', () => {
    const waiting = new Waiting();
    for (let peer = 0; peer < 1000; peer++) waiting.await(`${peer}`, { isManual: true, owesAnswer: true, ageMs: 2000 });
    waiting.after(1);
    waiting.after(1);
    expect(waiting.warnings.length).toBe(256);
  });

  it('that is closed is not of this thread any more', () => {
    const waiting = new Waiting();
    waiting.own('a', true);
    for (const peers of open.splice(0)) peers.close();
    waiting.await('a');
    for (let second = 0; second < 3; second++) waiting.after(1);
    expect(waiting.warnings).toEqual([]);
  });
});
