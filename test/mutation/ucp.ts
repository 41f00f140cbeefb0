/** Faults in ucp: order and failures over several lanes, releases, limits against hostile peers. */

import type { Area } from './fault.ts';

export const UCP: Area = {
  name: 'ucp',
  suites: ['test/contract/ucp/', 'test/simulation/simulation', 'test/fuzz/', 'test/property/'],
  faults: [
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (failure === Status.OK) failure = status;',
      after: 'else failure = status;',
      breaks: 'a check of lanes reports the first failure, although a later lane succeeds',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (status < 0) request.failure = status;',
      after: '',
      breaks: 'a flush ends with the failure of a lane',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'request.failure = failure === Status.OK ? kept : failure;',
      after: 'request.failure = failure;',
      breaks: 'a failure that a fence has found is reported by the next flush',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: '    request.count += connection.notifications.await(request.onList);'.trim(),
      after: 'connection.notifications.await(request.onList);',
      breaks: 'a flush ends after the notifications before it',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'const status = endpoint.flush(undefined);\n    if (status === Status.INPROGRESS) ordered = false;',
      after: 'const status = Status.OK as Status;\n    if (status === Status.INPROGRESS) ordered = false;',
      breaks: 'a fence over several lanes flushes them',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'else if (status < 0) connection.keepFailure(status);',
      after: '',
      breaks: 'a fence keeps the failure of a lane that it flushes',
    },
    {
      file: 'src/ucp/rma/flush.ts',
      before: 'if (connection.remoteOperations > 0) return false;',
      after: '',
      breaks: 'a fence waits for operations that only the peer can end',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'const isAligned = from % wordBytes === 0;',
      after: 'const isAligned = true;',
      breaks: 'an owner refuses a word that is not aligned',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'from + wordBytes > memory.byteLength',
      after: 'from > memory.byteLength',
      breaks: 'an owner refuses a word that ends behind its memory',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: '!isAtomicOperation(operation) || ',
      after: '',
      breaks: 'an owner refuses an operation that does not exist',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'const isKeyed = keyBytes >= MEMORY_KEY_BYTES;',
      after: 'const isKeyed = true;',
      breaks: 'an owner reads no key behind the end of a message',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'find(frame.bytes, keyAt, ATOMIC_ACCESS)',
      after: 'find(frame.bytes, keyAt, 0)',
      breaks: 'an owner refuses memory without atomic access',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before:
        'if (lane !== undefined) return lane.endpoint.atomic(call, offset, key.parts[lane.md.index]!, ENDED_IN_CALL);',
      after: '',
      breaks: 'an owner uses the atomic operations of a transport that peers use too',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'if (known !== undefined) return known.rkey;',
      after: '',
      breaks: 'an owner keeps one key of its memory',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'this.#all.delete(this.#memory);\n    this.rkey.release();',
      after: 'this.#all.delete(this.#memory);',
      breaks: 'the key of own memory is released with the memory',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'memory.messageKeys.add(this);',
      after: '',
      breaks: 'the key of own memory ends when the memory is unmapped',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'for (const key of [...this.#byMemory.values()]) key.revoke();',
      after: '',
      breaks: 'keys of own memory are released when the worker closes',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'request.isRemote = lane === undefined;',
      after: '',
      breaks: 'flushes wait for an operation that the owner executes',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: '  if (request.requestId === 0) {\n    request.replyHandler = endWithWord;',
      after: '  {\n    request.replyHandler = endWithWord;',
      breaks: 'a question that is sent again keeps its number',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'joinBig(low, high)',
      after: 'joinBig(high, low)',
      breaks: 'the word before the operation has its halves in order',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: 'if (performance.latencyNs < best) fastest = index;',
      after: 'if (performance.latencyNs > best || fastest < 0) fastest = index;',
      breaks: 'the fastest lane with atomic operations is taken',
    },
    {
      file: 'src/ucp/amo/atomics.ts',
      before: '|| rkey.parts[md.index] === undefined) continue;',
      after: ') continue;',
      breaks: 'a lane without a key is not taken for atomic operations',
    },
  ],
};
