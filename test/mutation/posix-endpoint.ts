/** Faults in the endpoints and interfaces of posix, and in cma: bounds of remote memory, sleeping, releases, refusals of the kernel. */

import type { Area } from './fault.ts';
import { inFile } from './in-file.ts';

const inEndpoint = inFile('src/uct/shm/posix/endpoint.ts');
const inIface = inFile('src/uct/shm/posix/iface.ts');
const inMd = inFile('src/uct/shm/posix/md.ts');
const inCma = inFile('src/uct/shm/cma/endpoint.ts');
const inCmaIface = inFile('src/uct/shm/cma/iface.ts');
const inCmaMd = inFile('src/uct/shm/cma/md.ts');

export const POSIX_ENDPOINT: Area = {
  name: 'posix-endpoint',
  suites: ['test/contract/uct/', 'test/contract/ucp/', 'test/integration/peers/', 'test/simulation/simulation'],
  faults: [
    inEndpoint(
      'if (!isInBytes(sourceOffset, byteLength, source)) return Status.INVALID_PARAM;',
      '',
      'a put has its bytes',
    ),
    inEndpoint('if (!isInBytes(targetOffset, byteLength, target)) return Status.INVALID_PARAM;', '', 'a get has room'),
    inEndpoint('if ((at & 3) === 0 && at', 'if (at', 'a put to any byte arrives there'),
    inEndpoint(
      'const at = key.base + remoteOffset;',
      'const at = remoteOffset;',
      'a put counts from the beginning of its memory',
    ),
    inEndpoint(
      'moveBytes(key.bytes, at, memory.bytes, offset, byteLength);\n      at += byteLength;',
      'moveBytes(key.bytes, at, memory.bytes, offset, byteLength);',
      'the entries of a put follow each other',
    ),
    inEndpoint(
      'moveBytes(memory.bytes, offset, key.bytes, at, byteLength);\n      at += byteLength;',
      'moveBytes(memory.bytes, offset, key.bytes, at, byteLength);',
      'the entries of a get follow each other',
    ),
    inEndpoint(
      'this.#counters.zcopy(Transfer.GET, total);',
      'this.#counters.zcopy(Transfer.PUT, total);',
      'gets are counted as gets',
    ),
    inEndpoint('this.#counters.bcopy(Transfer.AM, bytes);', '', 'packed messages are counted'),
    inEndpoint(
      'if (!isInside(remoteOffset, call.wordBytes, key.byteLength) || !key.live)',
      'if (!isInside(remoteOffset, 0, key.byteLength) || !key.live)',
      'an atomic operation is inside its memory',
    ),
    inEndpoint(
      'if (!isInside(remoteOffset, call.wordBytes, key.byteLength) || !key.live)',
      'if (!isInside(remoteOffset, call.wordBytes, key.byteLength))',
      'an atomic operation needs a live key',
    ),
    inEndpoint(
      'if (status === Status.OK) this.#counters.atomic();',
      'this.#counters.atomic();',
      'atomic operations that fail are not counted',
    ),
    inEndpoint("if (this.#isGone()) return 'room';", '', 'a sender whose receiver is gone does not wait for room'),
    inEndpoint(
      "if (this.#ring === undefined) return 'unknown';",
      "if (this.#ring === undefined) return 'asked';",
      'a sender without a slot looks again soon',
    ),
    inEndpoint(
      'if (this.#peer.retire()) ring?.leaveTo(this.#peer.goneProbe());',
      'this.#peer.retire();',
      'a closed sender leaves its ring to the receiver',
    ),
    inEndpoint('ring?.close();\n', '', 'a closed endpoint unmaps its ring'),
    inEndpoint('this.#newRing?.segment.close();', '', 'a closed endpoint releases a ring that it has not announced'),
    inEndpoint(
      'this.#peer.close();\n    this.#failure',
      'this.#failure',
      'a closed endpoint releases the directory of its peer',
    ),
    inEndpoint('this.#failure = Status.CANCELED;', '', 'operations of a closed endpoint are cancelled'),
    inEndpoint('this.#shared.forget(this);', '', 'an interface forgets a closed endpoint'),
    inEndpoint('if (at >= 0) this.blocked.splice(at, 1);', '', 'a closed endpoint does not wait for room'),
    inEndpoint(
      'for (const endpoint of this.blocked) endpoint.blockedOnSend = false;',
      '',
      'an endpoint that has had room can wait again',
    ),
    inEndpoint('this.blocked.length = 0;', '', 'endpoints that try again do not wait'),
    inEndpoint(
      'this.#newRing ??= this.#makeRing();\n      return undefined;',
      'this.#newRing = this.#makeRing();\n      return undefined;',
      'an endpoint has one ring',
    ),
    inEndpoint(
      'return this.#shared.onShortage(error);',
      'return undefined;',
      'a ring that finds no space has a reason',
    ),
    inEndpoint(
      'if (!isLackOfResources(error)) this.#shared.onShortage(error);',
      '',
      'the first ring that finds no space is a warning',
    ),
    inEndpoint('this.#newRing = ring;\n', '', 'a ring is kept until there is a slot'),
    inEndpoint(
      'this.#newRing = undefined;\n    this.#ring = ring;',
      'this.#ring = ring;',
      'a ring that was announced is closed once',
      'closing a segment twice has no effect',
    ),
    inEndpoint(
      'if (this.#refusals % REFUSALS_PER_CHECK === 0 && this.#isGone()) return this.#failure;',
      '',
      'a sender without room finds that its receiver is gone',
    ),
    inEndpoint('if (!this.blockedOnSend) this.#shared.blockOnSend(this);', '', 'a sender without room waits for it'),
    inEndpoint(
      'if (!this.blockedOnSend) this.#shared.blockOnSend(this);',
      'this.#shared.blockOnSend(this);',
      'a sender waits for room once',
    ),
    inEndpoint(
      'return this.#counters.refused(Status.NO_RESOURCE);',
      'return Status.NO_RESOURCE;',
      'refused messages are counted',
    ),
    inEndpoint(
      'return !this.#released && this.#published.live;',
      'return this.#published.live;',
      'a released key is not live',
    ),
    inEndpoint(
      'return !this.#released && this.#published.live;',
      'return !this.#released;',
      'a revoked key is not live',
    ),
    inEndpoint('this.#segments.release(this.#segment);', '', 'a released key detaches its segment'),
    inEndpoint('this.#published.release();\n', '', 'a released key gives its table back'),
    inIface(
      'onEnd: () => directory.setSleeping(false)',
      'onEnd: () => undefined',
      'an interface that is awake need not be woken',
    ),
    inIface(
      '() => this.#sleeper.wake());\n    const sender',
      '() => undefined);\n    const sender',
      'a peer wakes an interface that sleeps',
    ),
    inIface(
      'peer.close();\n    return undefined;',
      'return undefined;',
      'asking whether a peer is reachable keeps nothing',
    ),
    inIface('if (messages > 0) this.#sleeper.wake();', '', 'messages end a sleep'),
    inIface(
      'if (this.#closed || this.#handler === undefined) return Promise.resolve();',
      'if (this.#closed) return Promise.resolve();',
      'an interface without a handler does not sleep',
    ),
    inIface('this.#directory.setSleeping(true);', '', 'peers see that an interface sleeps'),
    inIface(
      'if (limitNs === 0 || this.#directory.hasNews) {',
      'if (limitNs === 0) {',
      'an interface with news does not sleep',
    ),
    inIface(
      'if (limitNs === 0 || this.#directory.hasNews) {',
      'if (this.#directory.hasNews) {',
      'an interface whose endpoint has room does not sleep',
    ),
    inIface(
      'this.#directory.setSleeping(false);\n      this.#sleeper.wake();',
      'this.#sleeper.wake();',
      'an interface that does not sleep says so',
    ),
    inIface(
      'this.#directory.setSleeping(false);\n      this.#sleeper.wake();',
      'this.#directory.setSleeping(false);',
      'news end the sleep of another caller',
    ),
    inIface('this.#directory.checkSome();', '', 'a sleep looks for dead senders'),
    inIface(
      'for (const endpoint of this.#shared.endpoints) endpoint.close();',
      '',
      'endpoints close with their interface',
    ),
    inIface('this.#sleeper.wake();\n    this.#directory.close();', 'this.#directory.close();', 'closing ends a sleep'),
    inIface('this.#pipe.close();\n  }', '}', 'closing releases the pipe'),
    inIface('Math.min(timeoutNs, this.#directory.retryNs)', 'timeoutNs', 'a sleep ends when a sender can be attached'),
    inIface("if (answer === 'unknown') limitNs = Math.min(limitNs, RETRY_NS);", '', 'a sleep for a free slot is short'),
    inIface('const RETRY_NS = 5e6;', 'const RETRY_NS = 5e9;', 'a sleep for a free slot takes 5 ms'),
    inIface(
      "if (answer !== 'room') continue;\n      this.#shared.unblock();",
      "if (answer !== 'room') continue;",
      'endpoints try again when one has room',
    ),
    inIface('directory.close();\n    throw error;', 'throw error;', 'a directory without a pipe is closed'),
    inIface(
      'if (this.#closed) throw closedError',
      'if (false) throw closedError',
      'a closed interface connects to nothing',
    ),
    inMd(
      'published.release();\n      throw error;',
      'throw error;',
      'a key that cannot be attached gives its table back',
    ),
    inMd('this.#segments.release(segment);\n', '', 'a forged key leaves no segment attached'),
    inMd('if (isInside(offset, byteLength, segment.byteLength)) {', 'if (true) {', 'a key is inside its segment'),
    inMd(
      'if (segment !== undefined) this.#segmentOf.set(memory, segment);',
      '',
      'memory that is registered again has a key',
    ),
    inMd('this.#hasWarned = true;', '', 'a full folder is one warning'),
    inMd('this.#segments.close();', '', 'a closed memory domain detaches segments of peers'),
    inMd(
      'if (isLackOfResources(error)) throw error;\n      throw refusal',
      'throw refusal',
      'a lack of descriptors is not a stale key',
    ),
    inCma('if (this.#pidfd < 0) return Status.ENDPOINT_TIMEOUT;\n', '', 'a closed endpoint reaches no process'),
    inCma('PollEvent.IN) === 0 ? Status.OK', 'PollEvent.IN) !== 0 ? Status.OK', 'the end of a process is found'),
    inCma('closeFd(this.#pidfd);\n', '', 'a closed endpoint has no descriptor'),
    inCma('this.#pidfd = -1;\n    this', 'this', 'an endpoint is closed once'),
    inCma(
      'transfer === Transfer.PUT ? copyToProcess : copyFromProcess',
      'transfer === Transfer.GET ? copyToProcess : copyFromProcess',
      'a put writes',
    ),
    inCma(
      'if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return',
      'if (!key.live) return',
      'a copy is inside the remote memory',
    ),
    inCma(
      'if (!isInside(remoteOffset, total, key.byteLength) || !key.live) return',
      'if (!isInside(remoteOffset, total, key.byteLength)) return',
      'a copy needs a live key',
    ),
    inCma(
      'if (key.owner.pid !== pid || key.owner.startTime !== startTime)',
      'if (key.owner.pid !== pid)',
      'a key of an earlier process with the same number is refused',
    ),
    inCma(
      'if (key.owner.pid !== pid || key.owner.startTime !== startTime)',
      'if (key.owner.startTime !== startTime)',
      'a key of another process is refused',
    ),
    inCma(
      'if (this.check() !== Status.OK) return Status.ENDPOINT_TIMEOUT;',
      '',
      'nothing is copied to the process that has the number now',
    ),
    inCma(
      'if (byteLength === 0) continue;',
      '',
      'an empty entry is left out',
      'the kernel copies no bytes then, and reports none',
    ),
    inCma('if (moved < byteLength) return', 'if (moved > byteLength) return', 'a partial copy is a failure'),
    inCma(
      'copy(pid, remote + moved, local + moved, byteLength - moved)',
      'copy(pid, remote, local, moved)',
      'a partial copy has the error of the rest',
    ),
    inCma('remote += byteLength;', '', 'the entries of a copy follow each other'),
    inCma('this.#counters.zcopy(transfer, total);', '', 'copies are counted'),
    inCma(
      'case Errno.ESRCH:\n        return Status.ENDPOINT_TIMEOUT;',
      'case Errno.ESRCH:\n        return Status.UNREACHABLE;',
      'a process that has ended is a time-out',
    ),
    inCmaIface(
      'onClose: (closed) => this.#endpoints.delete(closed)',
      'onClose: () => undefined',
      'an interface forgets a closed endpoint',
      'it only keeps the object until the interface closes',
    ),
    inCmaIface('for (const endpoint of this.#endpoints) endpoint.close();', '', 'endpoints close with their interface'),
    inCmaIface(
      'if (failure === undefined || failure.status !== status) return undefined;',
      'if (failure === undefined) return undefined;',
      'a failure is that of its status',
    ),
    inCmaIface(
      'if (peer.pidNamespace !== ownIdentity().pidNamespace) {',
      'if (false) {',
      'a process of another pid namespace is unreachable',
    ),
    inCmaIface('closeFd(fd);\n  throw', 'throw', 'a descriptor of another process is closed'),
    inCmaIface('if (!hasEnded(peer)) return fd;', 'return fd;', 'a number that was used again is another process'),
    inCmaIface('block.free();\n', '', 'asking the kernel keeps no memory'),
    inCmaMd(
      'if (location + published.byteLength <= ADDRESS_MAX) return',
      'if (location <= ADDRESS_MAX) return',
      'a key names memory of a process',
    ),
    inCmaMd('published.release();\n  ', '\n  ', 'a forged key gives its table back'),
    inCmaMd(
      'Int32Array.of(location, highOf(location))',
      'Int32Array.of(highOf(location), location)',
      'a key has the address of its memory',
    ),
  ],
};
