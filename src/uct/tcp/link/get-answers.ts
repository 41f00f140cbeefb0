/** Answers to the gets of a peer: frames with the bytes of memory that it may read. The link queues them. */

import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import { FrameType, getLengthOf, HEADER_BYTES, offsetOf, writeSignal } from '../wire/frame.ts';
import type { Outgoing } from '../wire/outgoing.ts';
import type { TcpBuffers } from '../wire/tcp-buffers.ts';
import { memoryOfGet, type TcpKeyTable } from '../wire/tcp-key.ts';

/** The answers of one connection. */
export class GetAnswers {
  /** Answers that are not sent. */
  queued = 0;
  readonly #buffers: TcpBuffers;
  readonly #keys: TcpKeyTable;
  /** Counts answers that were sent. */
  readonly #sent: Completion = {
    count: 1,
    failure: Status.OK,
    onComplete: () => {
      this.#sent.count = 1;
      this.queued -= 1;
    },
  };

  constructor(buffers: TcpBuffers, keys: TcpKeyTable) {
    this.#buffers = buffers;
    this.#keys = keys;
  }

  /** The answer to a GET whose length is checked: its bytes, or a refusal. */
  answerTo(words: Int32Array, at: number): Outgoing {
    const { pool } = this.#buffers;
    const byteLength = getLengthOf(words, at);
    const memory = memoryOfGet(this.#keys, words, at);
    const isGood = memory !== undefined;
    const answer = pool.takeSmall();
    writeSignal(answer.words, 0, FrameType.GET_DATA, isGood ? byteLength : 0);
    answer.addHeader(HEADER_BYTES);
    if (isGood && byteLength > 0) answer.addMemory(memory, offsetOf(words, at), byteLength);
    if (isGood) answer.addPadding(byteLength, pool.zeros);
    answer.addEnd(isGood ? Status.OK : Status.INVALID_ADDR);
    answer.completion = this.#sent;
    this.queued += 1;
    return answer;
  }
}
