/** The inspect socket of this thread, queried by the same thread: snapshots, reasons, hostile answers, sockets of the dead, and the release at the end. */

import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { withoutDescriptors } from '../../../test/fixtures/processes/no-descriptors.ts';
import { createTestLog } from '../../../test/fixtures/test-log.ts';
import {
  addSeals,
  close as closeFd,
  connectUnix,
  Errno,
  ftruncate,
  gettid,
  listenUnix,
  memfdCreate,
  ownIdentity,
  SealFlag,
  SocketType,
  type UnixListener,
  type UnixSocket,
} from '../../sys/index.ts';
import { LogLevel } from '../../ucs/debug/log.ts';
import { ManualClock, systemClock } from '../../ucs/sys/clock.ts';
import { inspectProcesses } from './inspect-client.ts';
import { acquireServer, releaseServer, SNAPSHOT_SEALS } from './inspect-server.ts';
import { inspectSockets, ownSocketPath, socketFolder, trySocketFolder } from './inspect-sockets.ts';
import { SNAPSHOT_FORMAT } from './process-snapshot.ts';

const CLOCK = systemClock;
let runtime: string;
let folder: string;

beforeEach(() => {
  runtime = mkdtempSync(join(tmpdir(), 'gu-'));
  folder = socketFolder(runtime);
});
afterEach(() => rmSync(runtime, { recursive: true, force: true }));

/** The name of a socket; of this thread, with its own instance. */
function nameOf(changes: { pidNamespace?: number; pid?: number; tid?: number; startTime?: number } = {}): string {
  const { pidNamespace, pid, tid, startTime } = { ...ownIdentity(), tid: gettid(), ...changes };
  return `inspect-${pidNamespace}-${pid}-${tid}-${startTime}-0a1b2c3d.sock`;
}

function query(timeoutNs = 5e9) {
  return { runtimeDirectory: runtime, clock: CLOCK, timeoutNs };
}

/** Asks a made-up process, whose answer is the test's. */
async function asked(answer: (client: UnixSocket, listener: UnixListener) => void) {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const listener = listenUnix(join(folder, nameOf()), SocketType.SEQPACKET);
  try {
    const answers = inspectProcesses(query());
    const client = listener.accept()!;
    try {
      answer(client, listener);
    } finally {
      client.close();
    }
    return await answers;
  } finally {
    listener.close();
  }
}

/** Sends sealed memory with a string. */
function sendText(client: UnixSocket, text: string, seals = SNAPSHOT_SEALS): void {
  const fd = memfdCreate('test', { sealing: true });
  writeFileSync(fd, text);
  addSeals(fd, seals);
  client.sendmsg(new Uint8Array(1), [fd]);
  closeFd(fd);
}

describe('the socket of a thread', () => {
  expectNoLeaks();

  it('is served while a context is open, to this user only, and gives the snapshot of this process', async () => {
    const { log } = createTestLog();
    const options = { mode: 'yes', runtimeDirectory: runtime, clock: CLOCK, log } as const;
    expect([acquireServer(options), acquireServer(options)]).toEqual([true, true]);
    const [name, ...others] = readdirSync(folder);
    expect(others).toEqual([]);
    expect(statSync(join(folder, name!)).mode & 0o777).toBe(0o600);
    const answers = await inspectProcesses(query());
    expect(answers).toMatchObject([{ pid: process.pid, tid: gettid(), failure: undefined }]);
    expect(answers[0]!.snapshot).toMatchObject({
      format: SNAPSHOT_FORMAT,
      pid: process.pid,
      nodeVersion: process.version,
    });
    expect(await inspectProcesses({ ...query(), pid: process.pid + 1 })).toEqual([]);
    expect(await inspectProcesses({ ...query(), pid: process.pid })).toHaveLength(1);
    releaseServer();
    expect(await inspectProcesses(query())).toHaveLength(1);
    releaseServer();
    expect(readdirSync(folder)).toEqual([]);
    expect(await inspectProcesses(query())).toEqual([]);
  });

  it('answers several clients, also one after the other, and one that has gone', async () => {
    const { log, expectQuiet } = createTestLog();
    acquireServer({ mode: 'yes', runtimeDirectory: runtime, clock: CLOCK, log });
    try {
      const [first, second] = await Promise.all([inspectProcesses(query()), inspectProcesses(query())]);
      const third = await inspectProcesses(query());
      expect([first, second, third].map((answers) => answers[0]?.snapshot?.pid)).toEqual(
        [1, 1, 1].map(() => process.pid),
      );
    } finally {
      releaseServer();
    }
    expectQuiet();
  });

  it('is not made with UCX_INSPECT=n, and with try only if it can be', () => {
    const { log, records } = createTestLog();
    const blocked = join(runtime, 'file');
    writeFileSync(blocked, '');
    expect(acquireServer({ mode: 'no', runtimeDirectory: runtime, clock: CLOCK, log })).toBe(false);
    expect(existsSync(folder)).toBe(false);
    expect(acquireServer({ mode: 'try', runtimeDirectory: blocked, clock: CLOCK, log })).toBe(false);
    expect(records.map(({ level, message }) => [level, message])).toEqual([
      [expect.any(Number) as number, expect.stringContaining('this process cannot be inspected: ') as string],
    ]);
    expect(records[0]!.level).toBeGreaterThan(3);
    expect(() => acquireServer({ mode: 'yes', runtimeDirectory: blocked, clock: CLOCK, log })).toThrow(
      expect.objectContaining({ code: expect.stringMatching(/^ERR_/) as string }),
    );
    expect(acquireServer({ mode: 'try', runtimeDirectory: runtime, clock: CLOCK, log })).toBe(true);
    releaseServer();
  });
});

describe('a server', () => {
  expectNoLeaks();

  it('that has run out of descriptors warns once, and serves the client that waits when there are some', async () => {
    const { log, records } = createTestLog();
    const clock = new ManualClock();
    acquireServer({ mode: 'yes', runtimeDirectory: runtime, clock, log });
    const client = await withoutDescriptors(async () => {
      const connected = connectUnix(join(folder, readdirSync(folder)[0]!), SocketType.SEQPACKET);
      while (clock.pendingTimers === 0) await new Promise(setImmediate);
      // Neither can it poll again.
      clock.advance(1e9);
      return connected;
    }, 1);
    expect(records.map(({ level, message }) => [level, /^inspect: .*EMFILE/.test(message)])).toEqual([
      [LogLevel.WARN, true],
      [LogLevel.DEBUG, true],
    ]);
    const fds: number[] = [];
    expect(client.recvmsg(new Uint8Array(8), fds)).toBe(-Errno.EAGAIN);
    clock.advance(1e9);
    let received = -Errno.EAGAIN;
    for (let turn = 0; turn < 1000 && received === -Errno.EAGAIN; turn++) {
      await new Promise(setImmediate);
      received = client.recvmsg(new Uint8Array(8), fds);
    }
    expect([received, fds.length, clock.pendingTimers]).toEqual([1, 1, 0]);
    for (const fd of fds) closeFd(fd);
    client.close();
    releaseServer();
  });

  it.runIf(process.getuid?.() === 0)('gives nothing to another user', async () => {
    const { log } = createTestLog();
    acquireServer({ mode: 'yes', runtimeDirectory: runtime, clock: CLOCK, log });
    const path = join(folder, readdirSync(folder)[0]!);
    for (const each of [runtime, dirname(folder), folder]) chmodSync(each, 0o755);
    chmodSync(path, 0o666);
    process.seteuid!(65_534);
    let client: UnixSocket;
    try {
      client = connectUnix(path, SocketType.SEQPACKET);
    } finally {
      process.seteuid!(0);
    }
    const fds: number[] = [];
    let received = -Errno.EAGAIN;
    for (let turn = 0; turn < 1000 && received === -Errno.EAGAIN; turn++) {
      await new Promise(setImmediate);
      received = client.recvmsg(new Uint8Array(8), fds);
    }
    for (const fd of fds) closeFd(fd);
    client.close();
    releaseServer();
    expect([received, fds]).toEqual([0, []]);
  });
});

describe('the answer of a process', () => {
  expectNoLeaks();

  it.each([
    ['has the reason of the process, without control characters', 'no \u001b[31mmemory\n', 'no ?[31mmemory?'],
    ['needs a snapshot', '!', 'the reply has no snapshot'],
  ])('%s', async (_name, text, failure) => {
    const answers = await asked((client) => client.sendmsg(Buffer.from(text)));
    expect(answers).toEqual([{ pid: process.pid, tid: gettid(), snapshot: undefined, failure }]);
  });

  it('is read from memory whose seals are complete', async () => {
    const text = JSON.stringify({ format: SNAPSHOT_FORMAT, pid: 7 });
    const [whole] = await asked((client) => sendText(client, text));
    expect(whole!.snapshot).toEqual({ format: SNAPSHOT_FORMAT, pid: 7 });
    for (const missing of [SealFlag.SEAL, SealFlag.SHRINK, SealFlag.GROW, SealFlag.WRITE]) {
      const [answer] = await asked((client) => sendText(client, text, SNAPSHOT_SEALS & ~missing));
      expect([answer!.snapshot, answer!.failure]).toEqual([undefined, 'the reply is not sealed memory']);
    }
  });

  it('of another kind of file is refused', async () => {
    const [answer] = await asked((client, listener) => client.sendmsg(new Uint8Array(1), [listener.fd]));
    expect(answer!.failure).toBe('the reply is not sealed memory');
  });

  it.each([
    ['{', /^the snapshot is malformed: /],
    ['null', /^the process uses gaudi-ucx of unknown version, whose snapshot format is different: /],
    ['{"format": 2, "version": "0.0.9"}', /^the process uses gaudi-ucx 0\.0\.9, whose snapshot format is different: /],
  ])('of the text %s is refused', async (text, failure) => {
    const [answer] = await asked((client) => sendText(client, text));
    expect([answer!.snapshot, answer!.failure]).toEqual([undefined, expect.stringMatching(failure)]);
  });

  it('is not read beyond a limit', async () => {
    const [answer] = await asked((client) => {
      const fd = memfdCreate('test', { sealing: true });
      ftruncate(fd, 256 * 2 ** 20 + 1);
      addSeals(fd, SNAPSHOT_SEALS);
      client.sendmsg(new Uint8Array(1), [fd]);
      closeFd(fd);
    });
    expect(answer!.failure).toBe('the snapshot has 268435457 bytes, at most 268435456 are read');
  });

  it('that has come leaves no timer', async () => {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const listener = listenUnix(join(folder, nameOf()), SocketType.SEQPACKET);
    const clock = new ManualClock();
    const answers = inspectProcesses({ ...query(), clock });
    const client = listener.accept()!;
    client.sendmsg(Buffer.from('none'));
    expect(await answers).toMatchObject([{ failure: 'none' }]);
    expect(clock.pendingTimers).toBe(0);
    client.close();
    listener.close();
  });

  it('is missing where the connection is closed: a failure if the process still listens, else it has ended', async () => {
    expect(await asked(() => {})).toMatchObject([{ pid: process.pid, failure: 'connection closed without a reply' }]);
    expect(await asked((_client, listener) => listener.close())).toEqual([]);
  });

  it('has a time limit', async () => {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const listener = listenUnix(join(folder, nameOf()), SocketType.SEQPACKET);
    const clock = new ManualClock();
    let settled = false;
    const answers = inspectProcesses({ ...query(2.5e9), clock }).finally(() => {
      settled = true;
    });
    clock.advance(2.5e9 - 1);
    await new Promise(setImmediate);
    expect(settled).toBe(false);
    clock.advance(1);
    expect(await answers).toMatchObject([{ failure: expect.stringMatching(/^no reply within 2\.5 s: /) as string }]);
    listener.close();
  });
});

describe('the sockets of a user', () => {
  it('are those of processes that may be alive, by pid and thread; those of the dead are removed', () => {
    mkdirSync(folder, { recursive: true });
    const own = nameOf();
    const alien = [
      nameOf({ pidNamespace: 1, pid: 9, tid: 12 }),
      nameOf({ pidNamespace: 1, pid: 9, tid: 11 }),
      nameOf({ pidNamespace: 1, pid: 3, tid: 30 }),
    ];
    const dead = [
      nameOf({ startTime: ownIdentity().startTime + 1 }),
      nameOf({ tid: 4_194_303 }),
      `${nameOf({ tid: 4_194_302 })}.new`,
    ];
    const others = ['node.sock', `x${own}`, `${own}.old`, own.replace('0a1b', 'ghij')];
    for (const name of [own, `${own}.new`, ...alien, ...dead, ...others]) writeFileSync(join(folder, name), '');
    expect(inspectSockets(runtime).map(({ process: { pid }, tid }) => [pid, tid])).toEqual([
      [3, 30],
      [9, 11],
      [9, 12],
      [process.pid, gettid()],
    ]);
    expect(readdirSync(folder).sort()).toEqual([own, `${own}.new`, ...alien, ...others].sort());
  });

  it('are none without their folder; one that cannot be read is an error', () => {
    expect(inspectSockets(runtime)).toEqual([]);
    mkdirSync(dirname(folder), { recursive: true });
    writeFileSync(folder, '');
    expect(() => inspectSockets(runtime)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(folder) }),
    );
  });

  it('of a process that was killed where its end cannot be seen is removed when it is queried', async () => {
    mkdirSync(folder, { recursive: true });
    const path = join(folder, nameOf({ pidNamespace: 1 }));
    const listener = listenUnix(path, SocketType.SEQPACKET);
    closeFd(listener.fd);
    expect(await inspectProcesses(query())).toEqual([]);
    expect(existsSync(path)).toBe(false);
  });

  it('have a name of their thread, in a folder for this user only', () => {
    const path = ownSocketPath(runtime);
    expect(dirname(path)).toBe(folder);
    const { pidNamespace, pid, startTime } = ownIdentity();
    expect(path).toContain(`inspect-${pidNamespace}-${pid}-${gettid()}-${startTime}-`);
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    chmodSync(folder, 0o700);
  });

  it('can be tried without a trace, but for a folder that was there', () => {
    expect(trySocketFolder(runtime)).toBe(folder);
    expect(readdirSync(runtime)).toEqual([]);
    trySocketFolder(join(runtime, 'missing'));
    expect(readdirSync(runtime)).toEqual([]);
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    writeFileSync(join(folder, 'x'), '');
    trySocketFolder(runtime);
    expect(readdirSync(folder)).toEqual(['x']);
  });
});
