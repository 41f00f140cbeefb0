/** System calls under frequent signals: interruptible calls are interrupted, and no caller is affected. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectNoLeaks } from '../../../test/fixtures/leak-check.ts';
import { startSignalStorm, stopSignalStorm } from '../../../test/fixtures/processes/signal-storm.ts';
import { Errno } from '../base/errno.ts';
import { pollCall } from '../base/libc.ts';
import { allocateScratch } from '../base/scratch.ts';
import { EventFd } from '../event/event-fd.ts';
import { futexWait } from '../event/futex.ts';
import { close, PollEvent, pipe2, pollFor, pollNow } from '../file/file.ts';
import { fileStatus, reserveFile } from '../file/file-status.ts';
import { memfdCreate } from '../memory/memfd.ts';

/** Signals per second: more frequent than reservations of some MiB. */
const HERTZ = 5000;
const RESERVED_BYTES = 64 * 2 ** 20;

expectNoLeaks();
beforeAll(() => startSignalStorm(HERTZ));
afterAll(stopSignalStorm);

describe('under a storm of signals', () => {
  it('poll returns only the events of the descriptor', () => {
    const [reader, writer] = pipe2();
    const record = allocateScratch(8);
    record.words.set([reader, PollEvent.IN]);
    let seen = 0;
    // Repeat until the kernel has certainly interrupted such calls.
    for (let interrupted = 0; interrupted < 5; interrupted += pollCall(record.address, 1, 0) < 0 ? 1 : 0) {
      for (let round = 0; round < 8; round++) seen |= pollNow(reader, PollEvent.IN);
    }
    expect(seen).toBe(0);
    expect(pollNow(writer, PollEvent.OUT)).toBe(PollEvent.OUT);
    for (let round = 0; round < 20; round++) expect(pollFor(reader, PollEvent.IN, 50)).toBe(0);
    record.free();
    close(reader);
    expect(pollNow(writer, PollEvent.OUT) & PollEvent.ERR).toBe(PollEvent.ERR);
    close(writer);
    expect(pollNow(writer, PollEvent.OUT)).toBe(PollEvent.NVAL);
  });

  it('memory is reserved, for any duration', () => {
    const fd = memfdCreate('reserved');
    reserveFile(fd, RESERVED_BYTES);
    expect(fileStatus(fd).byteLength).toBe(RESERVED_BYTES);
    close(fd);
  });

  it('a futex wait reports the signal, and event descriptors do not', () => {
    const word = allocateScratch(8);
    expect(futexWait(word.address, 0, 50e6)).toBe(-Errno.EINTR);
    word.free();
    const event = new EventFd();
    for (let round = 0; round < 2000; round++) {
      event.signal();
      expect(event.tryRead()).toBe(1);
      expect(event.tryRead()).toBe(0);
    }
    event.close();
  });
});
