/** Card of one process of the exchange: its HBM, endpoints to the processes of the other cards, and transfers. The parent process controls the order. */

import { createHash } from 'node:crypto';
import { open } from 'node:fs/promises';
import type { Endpoint, TransferResult } from '../../api/contract/endpoint.ts';
import type { IovPiece, MemoryHandle, RemoteKey } from '../../api/contract/memory.ts';
import type { Request } from '../../api/contract/request.ts';
import type { Worker } from '../../api/contract/worker.ts';
import { Context } from '../../assembly/context.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Assignment, Contact, Round, RoundAnswer } from './exchange-messages.ts';
import { readFully } from './one-card.ts';

/** Timeout of a measurement, which blocks the event loop: the end of a peer is not detected meanwhile. */
const MEASURE_TIMEOUT_NS = 10e9;

/** A range of the file. */
interface FileSlice {
  readonly offset: number;
  readonly byteLength: number;
}

/** Peer process of the exchange. */
interface Neighbour {
  readonly endpoint: Endpoint;
  readonly key: RemoteKey;
  readonly slice: FileSlice;
}

/** The card of this process. */
export class CardHolder {
  readonly contact: Contact;
  readonly #assignment: Assignment;
  readonly #context: Context;
  readonly #worker: Worker;
  readonly #hbm: MemoryHandle;
  readonly #host: Uint8Array;
  readonly #slice: FileSlice;
  /** Peers by index, including this process. */
  #cards: readonly Neighbour[] = [];

  private constructor(assignment: Assignment, context: Context) {
    const { index, count, byteLength, spareBytes } = assignment;
    this.#assignment = assignment;
    this.#context = context;
    this.#worker = context.worker();
    const hbmBytes = byteLength + 2 * spareBytes;
    this.#hbm = context.memMap({ allocate: hbmBytes, memoryType: MemoryType.GAUDI });
    // Not allocated by a memory domain, whose memory is in /dev/shm, which is small in containers.
    this.#host = new Uint8Array(byteLength);
    this.#slice = sliceOf(index, count, byteLength);
    this.contact = { address: this.#worker.address(), key: context.packRkey(this.#hbm) };
  }

  /** Opens the card of this process and allocates its HBM. Throws the errors of Context.create and memMap. */
  static async open(assignment: Assignment): Promise<CardHolder> {
    const context = await Context.create();
    try {
      return new CardHolder(assignment, context);
    } catch (error) {
      await context.close();
      throw error;
    }
  }

  /** Connects to all cards, including the own card, and fills the ranges used by {@link measure}. */
  async connect(contacts: readonly Contact[]): Promise<void> {
    const { index: own, count, byteLength, spareBytes } = this.#assignment;
    this.#cards = contacts.map(({ address, key }, index) => {
      const endpoint = this.#worker.endpoint(address);
      return { endpoint, key: endpoint.unpackRkey(key), slice: sliceOf(index, count, byteLength) };
    });
    const { endpoint, key } = this.#own;
    await endpoint.put(new Uint8Array(spareBytes).fill(own + 1), key, { remoteOffset: byteLength });
  }

  /** Fills the HBM: the own slice with the bytes of the file, the other slices with zeros. */
  async load(): Promise<void> {
    const { offset, byteLength } = this.#slice;
    const bytes = this.#host.fill(0);
    const file = await open(this.#assignment.file, 'r');
    try {
      await readFully(file, bytes.subarray(offset, offset + byteLength), offset);
    } finally {
      await file.close();
    }
    const { endpoint, key } = this.#own;
    await endpoint.put(this.#host, key);
  }

  /** Sends the own slice to all other cards, or gets their slices. */
  async exchange(round: Round): Promise<RoundAnswer> {
    const others = this.#cards.filter((card) => card !== this.#own);
    const flying = others.flatMap((card) => {
      const moved = round === 'get' ? card.slice : this.#slice;
      return moved.byteLength === 0 ? [] : [this.#start(round, card)];
    });
    const receives = round === 'tag' ? this.#receiveSlices() : [];
    const [results] = await Promise.all([Promise.all(flying), Promise.all(receives)]);
    const bytes = results.reduce((sum, result) => sum + result.byteLength, 0);
    const [first] = results;
    const transport = first?.transport === undefined ? undefined : `${first.transport}/${first.device}`;
    return { bytes, transport, protocol: first?.protocol, note: this.#noteOf(round, others[0]) };
  }

  /** Computes the SHA-256 of the file in the HBM. */
  async digest(): Promise<string> {
    const { endpoint, key } = this.#own;
    const bytes = this.#host.fill(0);
    await endpoint.get(this.#host, key);
    return createHash('sha256').update(bytes).digest('hex');
  }

  /**
   * Repeatedly puts the spare bytes of the HBM into those of another card.
   * @returns nanoseconds
   * @throws UcxError TIMED_OUT
   */
  measure(to: number, repetitions: number): number {
    const { endpoint, key } = this.#cards[to]!;
    const deadlineNs = systemClock.nowNs() + MEASURE_TIMEOUT_NS;
    this.#putSpare(endpoint, key, 1, deadlineNs);
    const begin = systemClock.nowNs();
    this.#putSpare(endpoint, key, repetitions, deadlineNs);
    return systemClock.nowNs() - begin;
  }

  /** Closes everything. */
  async close(): Promise<void> {
    await this.#context.close();
  }

  get #own(): Neighbour {
    return this.#cards[this.#assignment.index]!;
  }

  #start(round: Round, { endpoint, key, slice }: Neighbour): Promise<TransferResult> {
    if (round === 'put') return endpoint.put(this.#hbm, key, rangeOf(this.#slice));
    if (round === 'get') return endpoint.get(this.#hbm, key, rangeOf(slice));
    return endpoint.tagSend(this.#piece(this.#slice), { tag: this.#assignment.index }).then((sent) => {
      return { ...sent, byteLength: this.#slice.byteLength };
    });
  }

  /** Note of explain for the protocol of a put or get between this card and another one. */
  #noteOf(round: Round, card: Neighbour | undefined): string | undefined {
    if (round === 'tag' || card === undefined) return undefined;
    const { byteLength } = round === 'get' ? card.slice : this.#slice;
    return card.endpoint.explain(round, this.#hbm, card.key).at(Math.max(1, byteLength)).winner?.note;
  }

  /** Posts one receive for each slice of another card. The tag is the index of the sender. */
  #receiveSlices(): Promise<unknown>[] {
    return this.#cards.flatMap((card, tag) => {
      if (card === this.#own || card.slice.byteLength === 0) return [];
      return [this.#worker.tagRecv(this.#piece(card.slice), { tag })];
    });
  }

  #piece(slice: FileSlice): IovPiece[] {
    return [{ memory: this.#hbm, ...slice }];
  }

  #putSpare(endpoint: Endpoint, key: RemoteKey, repetitions: number, deadlineNs: number): void {
    const { byteLength, spareBytes } = this.#assignment;
    const flying: (Status | Request)[] = [];
    const params = { noImmediateCompletion: true };
    for (let i = 0; i < repetitions; i++) {
      flying.push(endpoint.putNbx(this.#hbm, byteLength, spareBytes, key, byteLength + spareBytes, params));
    }
    for (const request of flying) this.#finish(request, deadlineNs);
    this.#finish(endpoint.flushNbx(params), deadlineNs);
  }

  #finish(request: Status | Request, deadlineNs: number): void {
    if (typeof request === 'number') throw statusError(request, 'put to another card');
    while (!request.isCompleted) {
      this.#worker.progress();
      if (systemClock.nowNs() > deadlineNs) throw statusError(Status.TIMED_OUT, 'put to another card');
    }
    const { status } = request;
    request.free();
    if (status < 0) throw statusError(status, 'put to another card');
  }
}

/** Offset and length of a slice: the same in the HBM of every card. */
function rangeOf({ offset, byteLength }: FileSlice): { offset: number; remoteOffset: number; byteLength: number } {
  return { offset: offset, remoteOffset: offset, byteLength };
}

/** The slice of a card. Lengths differ by at most one byte; if the file has fewer bytes than there are cards, some slices are empty. */
function sliceOf(index: number, count: number, byteLength: number): FileSlice {
  const offset = Math.floor((index * byteLength) / count);
  return { offset, byteLength: Math.floor(((index + 1) * byteLength) / count) - offset };
}
