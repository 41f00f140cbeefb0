/** Faults in the rings of posix: bounds against hostile senders and receivers, wake-ups, room. */

import type { Area } from './fault.ts';
import { inFile } from './in-file.ts';

const inRing = inFile('src/uct/shm/posix/ring.ts');
const inLayout = inFile('src/uct/shm/posix/layout.ts');

export const POSIX_RING: Area = {
  name: 'posix-ring',
  suites: ['test/contract/uct/', 'test/fuzz/ring-contents', 'test/contract/ucp/', 'test/simulation/simulation'],
  faults: [
    inRing(
      '((this.#head - tail) | 0) < 0 || ((tail - this.#tail) | 0) < 0',
      '((tail - this.#tail) | 0) < 0',
      'a count of the receiver beyond the sent messages is ignored',
    ),
    inRing(
      '((this.#head - tail) | 0) < 0 || ((tail - this.#tail) | 0) < 0',
      '((this.#head - tail) | 0) < 0',
      'a count of the receiver that goes back is ignored',
    ),
    inRing(
      'return ((this.#head - tail) | 0) <= this.#mask;',
      'return ((this.#head - tail) | 0) < this.#mask;',
      'a ring takes as many messages as it has elements',
    ),
    inRing(
      'this.#segmentsAtElement[(tail - 1) & this.#mask]!',
      'this.#segmentsAtElement[tail & this.#mask]!',
      'segments are free once the message in them was processed, not before',
    ),
    inRing('Atomics.store(this.#words, RingWord.WANT, 1);', '', 'a sender without room asks the receiver to wake it'),
    inRing(
      'return !(this.#hasRoom() && this.#hasSegments(this.#messageSegmentsMax));',
      'return !this.#hasRoom();',
      'a sender waits until the longest message has room',
    ),
    inRing(
      'if (!isInside(0, byteLength, frame.byteLength)) return Status.INVALID_PARAM;',
      '',
      'a packer that writes more than there is room for sends nothing',
    ),
    inRing(
      'if (byteLength > this.#inlineBytesMax) {',
      'if (byteLength > this.#inlineBytesMax + 4) {',
      'a message in an element does not reach the next one',
    ),
    inRing('return count <= left ? this', 'return count < left ? this', 'a message takes the last segments of a ring'),
    inRing(
      'this.#segmentHead = (first + count) | 0;',
      'this.#segmentHead = (this.#segmentHead + count) | 0;',
      'segments that are left out at the end of a ring count as used',
    ),
    inRing(
      'return this.#hasRoom() && ((last - this.#segmentTail) | 0) <= this.#segmentMask;',
      'return this.#hasRoom();',
      'a message is not written over segments in use',
    ),
    inRing(
      'return this.#hasRoom() && ((last - this.#segmentTail) | 0) <= this.#segmentMask;',
      'return this.#hasRoom() && ((last - this.#segmentTail) | 0) < this.#segmentMask;',
      'all segments can be in use',
    ),
    inRing(
      'if (!this.#hasSegments(count)) return Status.NO_RESOURCE;\n    const first',
      'const first',
      'a packer is not called without segments',
    ),
    inRing(
      'const MESSAGES_PER_POLL = 32;',
      'const MESSAGES_PER_POLL = 33;',
      'one call of progress takes at most 32 messages of a sender',
    ),
    inRing(
      'while (head !== last && this.#unreleasedBytes < this.#releaseAfterBytes) {',
      'while (head !== last) {',
      'segments are released before a quarter of them is exceeded',
    ),
    inRing(
      'this.#head = head = next;\n      this.#counters.received(this.#frame.byteLength);\n      handler(words[element + ElementWord.INFO]! & ID_MASK, this.#frame);',
      'head = next;\n      this.#counters.received(this.#frame.byteLength);\n      handler(words[element + ElementWord.INFO]! & ID_MASK, this.#frame);\n      this.#head = head;',
      'a message whose handler throws is not delivered again',
    ),
    inRing('this.#counters.received(this.#frame.byteLength);', '', 'received messages are counted'),
    inRing(
      'this.closing = true;\n        break;',
      'this.closing = true;',
      'no message of a sender is delivered after its rejection',
    ),
    inRing('if (unreleased === 0 || (count', 'if ((count', 'a ring without new messages does not wake its sender'),
    inRing('(count > 0 && isFew)', 'isFew', 'the last messages are released when there are no more'),
    inRing(
      'unreleased < this.#releaseAfter &&',
      'unreleased <= this.#releaseAfter &&',
      'a quarter of the messages is released at once',
    ),
    inRing('index < 0 || index', 'index', 'a message in a segment before the first is invalid'),
    inRing(
      'index >= this.#segments)',
      'index > this.#segments)',
      'a message in the segment behind the last is invalid',
    ),
    inRing(
      'room = (this.#segments - index)',
      'room = this.#segments',
      'a message that ends behind the last segment is invalid',
    ),
    inRing(
      'if (byteLength < 0 || byteLength > room)',
      'if (byteLength > room)',
      'a message of a negative length is invalid',
    ),
    inRing('byteLength > room)', 'byteLength > room + 64)', 'a message that is longer than its element is invalid'),
    inRing('this.#unreleasedBytes += byteLength;', '', 'bytes in segments count for their release'),
    inRing('& ID_MASK, this.#frame', ', this.#frame', 'an id has five bits, whatever a sender writes'),
    inRing(
      'this.#published = head;\n    this.#unreleasedBytes = 0;',
      'this.#published = head;',
      'released bytes do not count again',
    ),
    inRing('this.#published = head;\n    this', 'this', 'released messages do not count again'),
    inRing('&& Atomics.exchange(this.#words, RingWord.WANT, 0) !== 0', '', 'a sender is woken once'),
    inRing('Atomics.store(this.#words, RingWord.TAIL, head);', '', 'a receiver publishes its progress'),
    inRing('this.corrupt = true;', '', 'an invalid message marks its ring'),
    inRing(
      'identityText(directoryName));\n    this.#mask',
      "'');\n    this.#mask",
      'a message names the interface of its sender',
    ),
    inRing('kept.length === byteLength &&', '', 'a part has the length that was asked for'),
    inRing(
      'Math.max(1, Math.min(geometry.elements, geometry.segments) >> 2)',
      'Math.min(geometry.elements, geometry.segments) >> 2',
      'a ring of few segments releases messages one by one',
      'below 1 it is 0: then no number is few either, and each poll releases',
    ),
    inLayout(
      'if (words[RingWord.VERSION] !== RING_VERSION) return undefined;',
      '',
      'a ring of another version is not read',
    ),
    inLayout('&& segments <= elements', '', 'a ring has at most as many segments as elements'),
    inLayout('isGood && ringBytes(geometry) <= byteLength ?', 'isGood ?', 'a ring fits into its segment'),
    inLayout(
      'return value > 0 && (value & (value - 1)) === 0;',
      'return (value & (value - 1)) === 0;',
      'a ring has elements',
    ),
    inLayout('return value > 0 && value % 64 === 0;', 'return value % 64 === 0;', 'elements have a length'),
    inLayout(
      'return Math.max(1, segments >>',
      'return Math.max(0, segments >>',
      'a ring of few segments carries long messages',
    ),
    inLayout('1 << (slot & 31));', '1 << (slot & 15));', 'each slot has a doorbell'),
    inLayout('Atomics.or(words, DirectoryWord.DOORBELL_SUMMARY, 1 << group);', '', 'a doorbell is seen in the summary'),
    inLayout(
      'for (; groups !== 0; groups &= groups - 1)',
      'for (; groups > 0; groups &= groups - 1)',
      'the doorbells of the last slots ring',
    ),
    inLayout(
      'for (; slots !== 0; slots &= slots - 1)',
      'for (; slots > 0; slots &= slots - 1)',
      'the last doorbell of a word rings',
    ),
    inLayout(
      'wakeFd: words[RingWord.WAKE_FD]! };',
      'wakeFd: words[RingWord.VERSION]! };',
      'a ring names the pipe of its sender',
    ),
  ],
};
