/** Faults in the directory of posix and its senders: wake-ups, releases, dead and hostile peers, sleeping. */

import type { Area } from './fault.ts';
import { inFile } from './in-file.ts';

const inDirectory = inFile('src/uct/shm/posix/directory.ts');
const inPeer = inFile('src/uct/shm/posix/peer.ts');

export const POSIX_DIRECTORY: Area = {
  name: 'posix-directory',
  suites: [
    'test/contract/uct/',
    'test/contract/ucp/',
    'test/simulation/simulation',
    'test/integration/peers/',
    'test/fuzz/',
  ],
  faults: [
    inDirectory(
      'sender.wake();\n      sender.close();',
      'sender.close();',
      'closing wakes senders that sleep until there is room',
    ),
    inDirectory(
      'Atomics.store(this.#words, DirectoryWord.ATTENTION, Attention.CLOSED);',
      '',
      'senders see that an interface has closed',
    ),
    inDirectory(
      'if (isNew) unlinkIfThere',
      'if (false) unlinkIfThere',
      'closing removes the rings that were not attached',
    ),
    inDirectory('this.#log.reportOmitted();', '', 'closing logs how many warnings were left out'),
    inDirectory(
      'this.#changesSeen || this.retryNs === 0) this.#takeChanges();',
      'this.#changesSeen) this.#takeChanges();',
      'a sender that could not be attached is tried again',
    ),
    inDirectory(
      'this.#changesSeen || this.retryNs === 0) return true;',
      'this.#changesSeen) return true;',
      'a sender that can be tried again is news',
    ),
    inDirectory(
      'if (Atomics.load(this.#words, DirectoryWord.DOORBELL_SUMMARY) !== 0) return true;',
      '',
      'a doorbell is news',
    ),
    inDirectory('return this.#polled.some(({ ring }) => ring.hasMessage);', 'return false;', 'a message is news'),
    inDirectory(
      'if (Atomics.load(this.#words, DirectoryWord.CHANGES) !== this.#changesSeen || this.retryNs === 0) return true;',
      'if (this.retryNs === 0) return true;',
      'a new sender is news',
    ),
    inDirectory('} finally {\n      this.#delivering = false;', '} finally {', 'progress continues after a call of it'),
    inDirectory(
      'return this.#poll(handler);\n    } finally {\n      this.#delivering = false;\n    }',
      'const count = this.#poll(handler);\n      this.#delivering = false;\n      return count;\n    } finally {\n    }',
      'progress continues after a handler that throws',
    ),
    inDirectory(
      'return Math.max(0, this.#retryAtNs - this.#clock.nowNs());',
      'return this.#retryAtNs - this.#clock.nowNs();',
      'the time until an attempt is not negative',
    ),
    inDirectory(
      'if (!sender.alive) this.#beginClosing(sender);\n      else',
      '',
      'a sleeping receiver finds senders that have died',
    ),
    inDirectory(
      'else if (sender.ring.hasMessage) this.#startPolling(sender);\n    }\n  }\n\n  /** Notifies all',
      '}\n  }\n\n  /** Notifies all',
      'a sleeping receiver finds a message whose doorbell was lost',
    ),
    inDirectory(
      'this.#nextChecked = (this.#nextChecked + 1) % this.#senders.length;',
      'this.#nextChecked = this.#nextChecked % this.#senders.length;',
      'each sleep checks other senders',
    ),
    inDirectory('const CHECKED_PER_SLEEP = 8;', 'const CHECKED_PER_SLEEP = 7;', 'a sleep checks eight senders'),
    inDirectory(
      'count = -1 - count;\n        sender.wake();',
      'count = -1 - count;',
      'a sender that sleeps until there is room is woken',
    ),
    inDirectory('count = -1 - count;', 'count = -count;', 'the number of messages is right when a sender is woken'),
    inDirectory(
      '(count === 0 && sender.ring.closing)',
      'sender.ring.closing',
      'the last messages of a sender that has closed are delivered',
    ),
    inDirectory(
      'this.#release(sender);\n        i -= 1;',
      'this.#release(sender);',
      'the sender behind a released one is polled',
    ),
    inDirectory('} else if (count > 0) sender.isActive = true;', '}', 'an active sender is polled in each call'),
    inDirectory(
      'else if (sender.isActive) sender.isActive = false;\n    else',
      'else',
      'a sender is polled for a round of reviews after its message',
    ),
    inDirectory(
      '&& !sender.ring.closing) this.#stopPolling',
      ') this.#stopPolling',
      'a sender that closes is polled until it is released',
    ),
    inDirectory(
      'if (sender.ring.hasMessage) this.#setPolled(sender, 1);\n    else this',
      'this',
      'a message that is published while its polling ends is delivered',
    ),
    inDirectory(
      'this.#polled.push(sender);\n    this.#setPolled(sender, 1);',
      'this.#polled.push(sender);',
      'a sender that is polled need not ring',
    ),
    inDirectory('this.#setPolled(sender, 0);', '', 'a sender that is not polled rings'),
    inDirectory(
      'sender.ring.closing = true;\n    this.#startPolling(sender);',
      'sender.ring.closing = true;',
      'a sender that closes while it is not polled is released',
    ),
    inDirectory(
      'this.#retryAtNs = Number.POSITIVE_INFINITY;\n    const',
      'const',
      'no attempt follows one that succeeded',
    ),
    inDirectory(
      'Atomics.exchange(this.#words, DirectoryWord.SCARCE, 0)',
      'Atomics.load(this.#words, DirectoryWord.SCARCE)',
      'senders are checked once for a sender without a slot',
    ),
    inDirectory('|| (isScarce && !known.alive)', '', 'dead senders are released when slots are scarce'),
    inDirectory(
      '(isScarce && !known.alive)',
      '!known.alive',
      'living senders are not checked when slots are not scarce',
      'a sender that has died is released sooner; it only costs system calls',
    ),
    inDirectory(
      'this.#retryAtNs = this.#clock.nowNs() + RETRY_NS;',
      '',
      'a sender that could not be attached for lack of descriptors is tried again',
    ),
    inDirectory(
      'this.#clock.nowNs() + RETRY_NS',
      'this.#clock.nowNs() + RETRY_NS * 1000',
      'an attempt follows after 5 ms',
    ),
    inDirectory(
      'if (sender === undefined) {\n      this.#free(slot);\n      return;\n    }',
      'if (sender === undefined) return;',
      'the slot of a ring that is gone is free',
    ),
    inDirectory(
      'sender.ring.closing = state === SlotState.CLOSED;',
      '',
      'a sender that closed before it was attached is released',
    ),
    inDirectory(
      'if (owner !== 0 && !isProcessAlive(owner))',
      'if (owner !== 0)',
      'the slot of a process that runs is kept',
    ),
    inDirectory(
      'if (owner !== 0 && !isProcessAlive(owner)) this.#free(slot);',
      '',
      'the slot of a process that died before its announcement is freed',
    ),
    inDirectory('this.#senders.splice(this.#senders.indexOf(sender), 1);', '', 'a released sender is checked no more'),
    inDirectory('this.#bySlot[sender.slot] = undefined;', '', 'a slot takes another ring after a release'),
    inDirectory(
      'sender.close();\n    if (sender.ring.isRejected)',
      'if (sender.ring.isRejected)',
      'a released sender has no descriptors and mappings',
    ),
    inDirectory(
      'if (sender.ring.isRejected) this.#turnAway(sender.slot);\n    else if',
      'if',
      'a rejected sender is notified',
    ),
    inDirectory(
      'if (state !== SlotState.READY) this.#free(slot);',
      '',
      'the slot of a rejected sender that has closed is free',
    ),
    inDirectory(
      'Atomics.compareExchange(this.#words, at, SlotState.READY, SlotState.REFUSED)',
      'Atomics.exchange(this.#words, at, SlotState.REFUSED)',
      'a sender that has closed is not refused',
      'its slot is freed in the same call, and it does not read it any more',
    ),
    inDirectory(
      'this.#turnAway(slot);\n    this.#log',
      'this.#log',
      'the sender of a ring that cannot be read is notified',
    ),
    inDirectory(
      'Atomics.store(this.#words, slotAt(slot) + SlotWord.POLLED, 0);',
      '',
      'the next sender of a slot rings until it is polled',
    ),
    inDirectory(
      'Atomics.store(this.#words, slotAt(slot) + SlotWord.STATE, SlotState.EMPTY);',
      '',
      'a free slot is empty',
    ),
    inDirectory('Atomics.store(this.#words, slotAt(slot) + SlotWord.OWNER, 0);', '', 'a free slot has no owner'),
    inDirectory(
      'if (!existsSync(path)) return undefined;',
      '',
      'a ring whose sender has died is not a reason for a warning',
    ),
    inDirectory('unlinkIfThere(path);\n      return', 'return', 'the file of an attached ring is removed'),
    inDirectory('segment.close();\n      if (!isLack', 'if (!isLack', 'a ring that cannot be used is unmapped'),
    inDirectory(
      'if (!isLackOfResources(error)) unlinkIfThere(path);',
      '',
      'the file of a ring that cannot be used is removed',
    ),
    inDirectory(
      'if (!isLackOfResources(error)) unlinkIfThere(path);',
      'unlinkIfThere(path);',
      'the file of a ring that can be attached later is kept',
      'the only call there that needs a descriptor follows one that has just given one back',
    ),
    inDirectory(
      'return this.#line?.alive === true;',
      'return this.#line?.alive !== false;',
      'a sender whose pipe is gone has died',
    ),
    inDirectory('this.#line?.close();', '', 'the pipe of a released sender is closed'),
    inDirectory('this.#line?.signal();', '', 'a sender is woken by its pipe'),
    inPeer('if (version !== DIRECTORY_VERSION) {', 'if (false) {', 'a directory of another version is not used'),
    inPeer(
      "if (line === undefined) throw segmentError('the process of the peer has ended');\n      return new Peer(directory, line, folder);",
      'return new Peer(directory, line!, folder);',
      'an interface that has ended is unreachable',
    ),
    inPeer('directory.close();\n      throw error;', 'throw error;', 'a directory that cannot be used is unmapped'),
    inPeer('if (isRefused || this', 'if (this', 'a refused ring is a failure'),
    inPeer(
      'this.#isAnnounced && this.#slot >= 0 && this.#words',
      'this.#slot >= 0 && this.#words',
      'a slot counts as refused after the announcement',
    ),
    inPeer('this.#line.alive ? Status.OK : Status.ENDPOINT_TIMEOUT', 'Status.OK', 'the end of a process is found'),
    inPeer(
      'return identity.pidNamespace === ownIdentity().pidNamespace && isProcessStopped(identity.pid);',
      'return isProcessStopped(identity.pid);',
      'the state of a process of another pid namespace is unknown',
    ),
    inPeer(
      'pid === own.pid && pidNamespace === own.pidNamespace',
      'pid === own.pid',
      'a process of another pid namespace with the same id is another one',
    ),
    inPeer(
      'return this.#claimed() || this.#hasClosing();',
      'return this.#claimed();',
      'a slot that will be free counts',
    ),
    inPeer(
      'this.#polledAt = at + SlotWord.POLLED;\n    this.#countChange();',
      'this.#polledAt = at + SlotWord.POLLED;',
      'the receiver sees an announced ring',
    ),
    inPeer('this.#polledAt = at + SlotWord.POLLED;\n', '', 'a sender reads whether its own ring is polled'),
    inPeer(
      'Atomics.store(words, DirectoryWord.SCARCE, 1);',
      '',
      'a sender without a slot has the receiver look for dead ones',
    ),
    inPeer(
      'Atomics.store(words, DirectoryWord.SCARCE, 1);\n    this.#countChange();',
      'Atomics.store(words, DirectoryWord.SCARCE, 1);',
      'the receiver sees that slots are scarce',
    ),
    inPeer(
      'if (this.#words[this.#polledAt] === 0) ringDoorbell',
      'if (this.#words[this.#polledAt] === 1) ringDoorbell',
      'a sender that is not polled rings',
    ),
    inPeer(
      'if (attention === Attention.CLOSED) return Status.CONNECTION_RESET;\n    this.#wake',
      'this.#wake',
      'a message to an interface that has closed fails',
    ),
    inPeer(
      'Atomics.store(this.#words, slotAt(this.#slot) + SlotWord.OWNER, 0);\n      this',
      'this',
      'a slot without an announced ring is given back',
    ),
    inPeer(
      'this.#slot = -1;\n    this.#countChange();',
      'this.#slot = -1;',
      'the receiver sees that a sender has closed',
    ),
    inPeer(
      'return this.check() === Status.OK;',
      'return true;',
      'the file of a ring is not left to an interface that has ended',
    ),
    inPeer('line?.close();\n        return', 'return', 'asking whether an interface has ended keeps no descriptor'),
    inPeer('return line === undefined;', 'return line !== undefined;', 'an interface without a pipe has ended'),
    inPeer(
      'if (isSyscallError(error)) return false;',
      'if (isSyscallError(error)) return true;',
      'an interface that cannot be asked has not ended',
    ),
    inPeer(
      'this.#line.close();\n    this.#directory.close();',
      'this.#line.close();',
      'a closed endpoint unmaps the directory',
    ),
    inPeer(
      'this.#line.close();\n    this.#directory.close();',
      'this.#directory.close();',
      'a closed endpoint closes the pipe',
    ),
    inPeer(
      'if (Atomics.compareExchange(this.#words, DirectoryWord.ATTENTION, SLEEPING, AWAKE) === SLEEPING)\n      this',
      'this',
      'of several senders one wakes the receiver',
    ),
    inPeer('=== SLEEPING)\n      this.#line.signal();', '=== SLEEPING) {}', 'a receiver that sleeps is woken'),
    inPeer('ownFile(path);', '', 'the pipe is removed when the process exits'),
    inPeer('if (!keepsPath) unlinkIfThere(path);', '', 'a pipe without a path is removed at once'),
    inPeer('while (read(fd, this.#drained) === DRAIN_BYTES);', '', 'a pipe that has woken its owner is empty'),
    inPeer(
      'if (fd >= 0) closeFd(fd);\n      unlinkIfThere(path);',
      'unlinkIfThere(path);',
      'a pipe that cannot be used is closed',
    ),
    inPeer(
      'if (fd >= 0) closeFd(fd);\n      unlinkIfThere(path);',
      'if (fd >= 0) closeFd(fd);',
      'a pipe that cannot be used is removed',
    ),
    inPeer('this.#subscription.unref();', '', 'a pipe does not keep the process running'),
    inPeer('this.#subscription.close();', '', 'a closed pipe is not watched'),
    inPeer(
      'closeFd(this.#fd);\n    if (this.#keepsPath) unlink',
      'if (this.#keepsPath) unlink',
      'a closed pipe has no descriptor',
    ),
    inPeer('if (this.#keepsPath) unlinkIfThere(this.#path);', '', 'a pipe with a path is removed'),
    inPeer(
      'isSyscallError(error, Errno.ENXIO) || isSyscallError(error, Errno.ENOENT)',
      'isSyscallError(error, Errno.ENOENT)',
      'a pipe without a reader has no owner',
    ),
    inPeer(
      'isSyscallError(error, Errno.ENXIO) || isSyscallError(error, Errno.ENOENT)',
      'isSyscallError(error, Errno.ENXIO)',
      'a pipe that was removed has no owner',
    ),
    inPeer(
      'if (fileStatus(fd).kind === FileKind.FIFO) return new WakeLine(fd);',
      'return new WakeLine(fd);',
      'a file that is not a pipe is not written to',
    ),
    inPeer('closeFd(fd);\n    return undefined;', 'return undefined;', 'a file that is not a pipe is closed'),
    inPeer('return !this.#closed && (pollNow', 'return (pollNow', 'a closed line has no owner'),
    inPeer('if (!this.#closed) write(this.#fd, ONE);', 'write(this.#fd, ONE);', 'a closed line writes nothing'),
  ],
};
