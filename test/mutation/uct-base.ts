/** Faults in what transports share, and in self: keys, atomic words, completions, the loopback queue. */

import type { Area } from './fault.ts';
import { inFile } from './in-file.ts';

const inKeys = inFile('src/uct/base/key/keys.ts');
const inTable = inFile('src/uct/base/key/rkey-table.ts');
const inReader = inFile('src/uct/base/key/rkey-table-reader.ts');
const inSegment = inFile('src/uct/base/key/segment.ts');
const inWord = inFile('src/uct/base/atomic-word.ts');
const inChecks = inFile('src/uct/base/checks.ts');
const inCounters = inFile('src/uct/base/counters.ts');
const inQueue = inFile('src/uct/self/queue.ts');
const inSelf = inFile('src/uct/self/iface.ts');
const inSelfMd = inFile('src/uct/self/md.ts');

export const UCT_BASE: Area = {
  name: 'uct-base',
  suites: ['test/contract/uct/', 'test/contract/ucp/', 'test/property/'],
  faults: [
    inKeys('if (left.byteLength !== right.byteLength) return false;', '', 'a secret has its length'),
    inKeys('left.device === right.device && left', 'left', 'a key names its device'),
    inKeys('left.generation === right.generation && left', 'left', 'a key has its generation'),
    inKeys('this.#byId.delete(entry.key.id);', '', 'a revoked key is stale'),
    inKeys('this.#byMemory.delete(memory);', '', 'memory whose key was revoked gets a new key'),
    inKeys('if (known !== undefined) return known;', '', 'memory has one key'),
    inTable(
      'slot >= TABLE_SLOTS || generation <= 0',
      'slot > TABLE_SLOTS || generation <= 0',
      'a slot is in the table',
    ),
    inTable(
      'slot >= TABLE_SLOTS || generation <= 0',
      'slot >= TABLE_SLOTS || generation < 0',
      'a free slot is of no key',
    ),
    inTable('slot.generation += 1;', '', 'a slot that is used again has another generation'),
    inTable(
      'words.fill(0, at + SlotWord.PAYLOAD, at + SlotWord.PAYLOAD + RKEY_TABLE_PAYLOAD_WORDS);',
      '',
      'a slot that is used again has nothing of the last payload',
    ),
    inTable('Atomics.store(slot.table.words, at + SlotWord.GENERATION, 0);', '', 'a key is revoked in all processes'),
    inTable('if (slot.generation < GENERATION_MAX) this.#free.push(slot);', '', 'a slot is used again'),
    inTable(
      'for (let index = TABLE_SLOTS - 1; index > 0; index--)',
      'for (let index = TABLE_SLOTS - 1; index >= 0; index--)',
      'a slot has one key',
    ),
    inTable('for (const table of this.#tables) table.close();', '', 'closing removes the tables'),
    inReader('if (this.#released) return;\n', '', 'a key is released once'),
    inReader(
      'this.#tables.release(table);\n      throw error;',
      'throw error;',
      'a key that is refused gives its table back',
    ),
    inReader('key.device === NO_DEVICE ? undefined : key.device', 'key.device', 'host memory has no device'),
    inReader('if (isLackOfResources(error)) throw error;\n', '', 'a lack of descriptors is not a stale key'),
    inReader(
      'if (!isCurrent()) throw this.#stale();\n    const slot',
      'const slot',
      'a revoked key is stale',
      'The check after the copy refuses what this one does: a key is handed out only when its slot is complete.',
    ),
    inReader('!sameSecret(secret, key.secret) || !isSame', '!isSame', 'a key has its secret'),
    inReader('const isSame = length === key.byteLength &&', 'const isSame =', 'a key has its length'),
    inReader('&& device === key.device;', ';', 'a key has its device'),
    inSegment('if (keepsPath) closeFd(fd);', '', 'a segment with a path keeps no descriptor'),
    inSegment(
      'unlinkIfThere(path);\n      closeFd(fd);\n      throw error;',
      'closeFd(fd);\n      throw error;',
      'a segment that finds no space leaves no file',
    ),
    inSegment(
      'unlinkIfThere(path);\n      closeFd(fd);\n      throw error;',
      'unlinkIfThere(path);\n      throw error;',
      'a segment that finds no space leaves no descriptor',
    ),
    inSegment('if (this.#fd !== 0) closeFd(this.#fd);', '', 'a closed segment has no descriptor'),
    inSegment('if (this.#ownsFile) unlinkIfThere(this.path);', '', 'a closed segment has no file'),
    inSegment('this.#ownsFile = false;\n', '', 'a segment that was left to a peer keeps its file'),
    inSegment('if (entry.references === 0) this.#idle -= 1;', '', 'a segment in use is not idle'),
    inSegment('if (entry.references > 0) return;\n', '', 'a segment in use stays attached'),
    inSegment(
      'if (this.#idle > this.#idleMax) this.#detachOldest();',
      'if (this.#idle >= this.#idleMax) this.#detachOldest();',
      'as many idle segments stay as may',
    ),
    inSegment('if (references > 0) continue;', '', 'the oldest idle segment is detached, not one in use'),
    inSegment('if (uid !== effectiveUserId())', 'if (uid < 0)', 'a segment of another user is refused'),
    inSegment('byteLength < byteLengthMin || byteLength', 'byteLength', 'a segment has the length that is needed'),
    inWord('if (at % 4 !== 0) return Status.INVALID_ADDR;', '', 'a short word is aligned'),
    inWord(
      'if (at % 8 !== 0) return Status.INVALID_ADDR;',
      'if (at % 4 !== 0) return Status.INVALID_ADDR;',
      'a long word is aligned',
    ),
    inWord(
      'const at = offset - this.#lead64;',
      'const at = offset - this.#lead32;',
      'words are aligned in memory, not in their buffer',
    ),
    inWord(
      'return Atomics.compareExchange(words, index, compare, value);\n  }\n}\n\nfunction',
      'return Atomics.compareExchange(words, index, value, compare);\n  }\n}\n\nfunction',
      'a compare-and-swap compares',
    ),
    inChecks(
      'if (status < 0 && completion.failure === Status.OK) completion.failure = status;',
      'if (status < 0) completion.failure = status;',
      'a completion has the first failure',
    ),
    inChecks(
      'if (completion.count === 0) completion.onComplete();',
      'if (completion.count <= 0) completion.onComplete();',
      'a completion completes once',
    ),
    inChecks(
      'return isRange(offset, byteLength) && offset + byteLength <= limit;',
      'return isRange(offset, byteLength) && offset + byteLength < limit;',
      'a range may end with its limit',
    ),
    inChecks('&& offset >= 0 && byteLength >= 0;', '&& offset >= 0;', 'a range has no negative length'),
    inChecks(
      'if (!isInside(headerWords * 4, payloadLength, bytesMax)) return false;',
      'if (!isInside(headerWords, payloadLength, bytesMax)) return false;',
      'a header counts in bytes',
    ),
    inCounters(
      'if (status === Status.NO_RESOURCE) this',
      'this',
      'only refusals for lack of resources are counted as such',
    ),
    inCounters(
      'if (status === Status.INPROGRESS) this.#values[FLUSH_WAIT]! += 1;',
      '',
      'flushes that wait are counted',
    ),
    inCounters(
      'values[BYTES_BCOPY]! += byteLength;',
      'values[BYTES_ZCOPY]! += byteLength;',
      'bytes that were copied are counted as such',
    ),
    inCounters('this.#values[RX_AM_BYTES]! += byteLength;', '', 'bytes of received messages are counted'),
    inQueue(
      'if (this.#tail - this.#head >= MESSAGES_MAX - 1) return undefined;',
      'if (this.#tail - this.#head >= MESSAGES_MAX) return undefined;',
      'the message that is being delivered is not written over',
    ),
    inQueue('this.#head += 1;\n      const', 'const', 'a message is delivered once'),
    inQueue(
      'const count = this.length;',
      'const count = MESSAGES_MAX;',
      'messages that a handler sends wait for the next progress',
    ),
    inQueue('i < count && this.length > 0', 'i < count', 'a handler that calls progress takes messages away'),
    inQueue(
      'if (!isInside(0, byteLength, this.#frameBytes)) return Status.INVALID_PARAM;',
      '',
      'a packer has at most the bytes of a message',
    ),
    inQueue('frame.byteLength = this.#frameBytes;\n', '', 'a packer has all the bytes of a message'),
    inQueue('this.#onMessage();', '', 'a message ends a sleep'),
    inQueue('this.#counters.received(frame.byteLength);', '', 'received messages are counted'),
    inSelf(
      'this.#messages.handler === undefined || this.#messages.length > 0) return',
      'this.#messages.handler === undefined) return',
      'an interface with messages does not sleep',
    ),
    inSelf('this.#closed || this.#messages.handler', 'this.#messages.handler', 'a closed interface does not sleep'),
    inSelf('this.#closed = true;\n    this.#sleeper.wake();', 'this.#closed = true;', 'closing ends a sleep'),
    inSelf('if (!memory.live) return Status.INVALID_ADDR;\n', '', 'memory that was freed is not accessed'),
    inSelf(
      'else moveBytes(local, offset, remote, at, byteLength);\n    at += byteLength;',
      'else moveBytes(local, offset, remote, at, byteLength);',
      'the entries of a list follow each other',
    ),
    inSelf(
      'return byteLength <= SHORT_BYTES_MAX && isInBytes',
      'return isInBytes',
      'a short operation has at most 8 KiB',
    ),
    inSelf('if (status === Status.OK) this.#counters.atomic();', '', 'atomic operations are counted'),
    inSelfMd('this.#retire(own);\n    own.mapping.close();', 'this.#retire(own);', 'freed memory is unmapped'),
    inSelfMd(
      "if (own.mapping !== undefined) throw invalidParam('memory', 'must come from memReg', own.address);",
      '',
      'memory that was allocated is not deregistered',
    ),
    inSelfMd('this.#keys.revoke(memory);\n', '', 'memory that was freed has no key'),
    inSelfMd(
      'this.#retire(memory);\n      memory.mapping?.close();',
      'this.#retire(memory);',
      'closing unmaps all memory',
    ),
    inSelfMd('this.#live.delete(memory);', '', 'memory that was freed is not counted'),
  ],
};
