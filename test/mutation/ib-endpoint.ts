/** Faults in the endpoints of ib: slots, credits, lists, atomic operations. */

import type { Area } from './fault.ts';

export const IB_ENDPOINT: Area = {
  name: 'ib-endpoint',
  suites: ['test/contract/uct', 'src/uct/ib'],
  faults: [
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (!isInside(0, total, tx.slotBytes)) tx.give(slot);',
      after: '',
      breaks: 'the slot of a packer with a bad length is given back',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (!isInside(0, total, tx.slotBytes)) return Status.INVALID_PARAM;',
      after: 'if (total > tx.slotBytes) return Status.INVALID_PARAM;',
      breaks: 'a packer returns no negative length',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'let total = -1;',
      after: 'let total = 0;',
      breaks: 'the slot of a packer that throws is given back',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: '(id & AM_ID_MASK) !== id || !isInside(0, headerWords, header.length)',
      after: '(id & AM_ID_MASK) !== id',
      breaks: 'a message without a header takes no slot',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (slot < 0) return counters.refused(Status.NO_RESOURCE);\n    const frame',
      after: 'const frame',
      breaks: 'a message without a slot waits',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'connection.credits -= 1;',
      after: '',
      breaks: 'a message takes a credit',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'return this.connection.credits > 0 ? Status.OK',
      after: 'return this.connection.credits >= 0 ? Status.OK',
      breaks: 'a message needs a credit',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'this.#isFenced = false;\n    return SendFlag.FENCE;',
      after: 'return SendFlag.FENCE;',
      breaks: 'a fence is in one request',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'this.#isFenced = true;',
      after: '',
      breaks: 'a fence orders the next request',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'const isInline = byteLength <= inlineBytes;',
      after: 'const isInline = byteLength <= inlineBytes + 8;',
      breaks: 'inline bytes have a limit',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before:
        'entry.completion = completion;\n    this.#post(at, completion);\n    this.#shared.counters.short(Transfer.PUT',
      after: 'this.#post(at, completion);\n    this.#shared.counters.short(Transfer.PUT',
      breaks: 'a put ends its completion',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before:
        'if (byteLength > tx.slotBytes || !isInBytes(targetOffset, byteLength, target)) return Status.INVALID_PARAM;',
      after: 'if (!isInBytes(targetOffset, byteLength, target)) return Status.INVALID_PARAM;',
      breaks: 'a short get fits into a slot',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'entry.targetOffset = targetOffset;',
      after: '',
      breaks: 'a short get delivers to its offset',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'this.#shared.outstanding += 1;\n    return counters.flush(status);',
      after: 'return counters.flush(status);',
      breaks: 'a flush is outstanding',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: '(rkey.iova + remoteOffset) % WORD_BYTES !== 0',
      after: 'remoteOffset % 1 !== 0',
      breaks: 'an atomic word is aligned',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (connection.freeSlots <= 0) return this.#shared.counters.refused(Status.NO_RESOURCE);',
      after: '',
      breaks: 'a repeated atomic operation waits for a slot',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (connection.failure !== Status.OK) return connection.failure;\n    if (connection.freeSlots',
      after: 'if (connection.freeSlots',
      breaks: 'a repeated atomic operation finds the failure of its connection',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'call.operation === AtomicOperation.CSWAP ? call.compare64 : assumed',
      after: 'assumed',
      breaks: 'a compare and swap compares with its own word',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'entry.assumed = assumed;',
      after: '',
      breaks: 'an operation that is repeated knows what it assumed',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'entry.hold(NO_IOV, rkey);',
      after: '',
      breaks: 'the key of an atomic operation is held',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (connection.isBusy) connection.flush(undefined);',
      after: '',
      breaks: 'a check reports the end of requests without completions',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (!connection.isUp) return Status.OK;',
      after: '',
      breaks: 'a check does not probe a connection that is not up',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (this.#closed) return Status.CANCELED;\n    this.#completions.receive();',
      after: 'this.#completions.receive();',
      breaks: 'a closed endpoint is not checked',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'this.#closed = true;\n    this.#onClose(this);',
      after: 'this.#onClose(this);',
      breaks: 'an endpoint is closed once',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'return connection.isUp && connection.freeSlots > 0 ?',
      after: 'return connection.freeSlots > 0 ?',
      breaks: 'nothing is posted before the connection is up',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (byteLength === 0) continue;',
      after: '',
      breaks: 'an entry without bytes is not in the list',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'iova + offset, byteLength, lkeys[index]!',
      after: 'iova, byteLength, lkeys[index]!',
      breaks: 'an entry begins at its offset',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'lkeys[index]!',
      after: 'lkeys[0]!',
      breaks: 'memory has a key for each device',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'rkeys[this.peerDevice] ?? 0',
      after: 'rkeys[0] ?? 0',
      breaks: 'a remote key is that of the device of the peer',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'if (completion !== undefined) this.#shared.outstanding += 1;\n    this.connection.post(at);',
      after: 'this.connection.post(at);',
      breaks: 'operations with completions are outstanding',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'this.#setIov(at, iov, slot >= 0 ? 1 : 0);',
      after: 'this.#setIov(at, iov, 0);',
      breaks: 'the header of a message is before its memory',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'entry.hold(iov, undefined);',
      after: '',
      breaks: 'the memory of a message is held',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'filled > max',
      after: 'filled > max + 1',
      breaks: 'a list has at most so many entries with bytes',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: '!memory.live || !isInside(offset, byteLength, memory.byteLength)',
      after: '!memory.live',
      breaks: 'an entry lies inside its memory',
    },
    {
      file: 'src/uct/ib/endpoint.ts',
      before: 'total > attributes.put.zcopyBytesMax',
      after: 'false',
      breaks: 'a list is at most as long as a message of the device',
    },
  ],
};
