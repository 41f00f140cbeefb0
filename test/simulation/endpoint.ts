/**
 * The endpoint of a simulated transport: every operation is a message to the peer and an answer. Zero copies read
 * and write the memory of the caller at any time before they end, and never afterwards.
 */

import { Status } from '../../src/ucs/type/status.ts';
import type { AmFrame, AmPacker, AtomicCall, Completion, IovEntry, UctEndpoint } from '../../src/uct/api/iface.ts';
import type { RemoteKey } from '../../src/uct/api/memory.ts';
import { AtomicWords } from '../../src/uct/base/atomic-word.ts';
import { completeOne, isInside } from '../../src/uct/base/checks.ts';
import type { SimulatedIface } from './iface.ts';
import { type SimulatedKey, SimulatedMemory } from './memory.ts';
import type { Line, Stream } from './network.ts';

/** Contents of a message after its handler. */
const POISON = 0xdb;

/** A message, or a buffer for one. */
class Frame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  readonly offset = 0;
  byteLength: number;
  readonly source: string;

  constructor(byteLength: number, port: number) {
    this.source = `port ${port}`;
    this.words = new Int32Array((((byteLength + 7) & ~7) + 8) >> 2);
    this.bytes = new Uint8Array(this.words.buffer);
    this.byteLength = byteLength;
  }
}

/** An operation in flight. */
interface Operation {
  readonly completion: Completion | undefined;
  readonly memory: SimulatedMemory | undefined;
  /** In the order of their start. */
  readonly number: number;
  hasEnded: boolean;
}

interface Flush {
  readonly completion: Completion;
  readonly waitsFor: Set<Operation>;
}

/** The effect on the memory of the peer: a failure, or OK. */
type RemoteWork = (memory: SimulatedMemory) => Status;

/** The endpoint. */
export class SimulatedEndpoint implements UctEndpoint, Line {
  readonly peerPort: number;
  readonly peerHost: number;
  readonly #iface: SimulatedIface;
  readonly #there: Stream;
  readonly #back: Stream;
  readonly #operations: Set<Operation> = new Set();
  #flushes: Flush[] = [];
  #messages = 0;
  /** Why the peer is lost; OK while it is not. */
  #lost: Status = Status.OK;
  /** First failure of an operation that was not reported. */
  #failure: Status = Status.OK;
  /** Number of that operation. */
  #failed = 0;
  #isClosed = false;
  #putsStarted = 0;
  /** Puts that the peer has taken since the last one that it has refused. */
  #putsInRow = 0;

  constructor(iface: SimulatedIface, peerPort: number, peerHost: number) {
    this.#iface = iface;
    this.peerPort = peerPort;
    this.peerHost = peerHost;
    this.#there = iface.network.stream(iface.host, peerHost);
    this.#back = iface.network.stream(peerHost, iface.host);
    const isGone = iface.network.port(peerPort) === undefined || iface.network.isLost(iface.host, peerHost);
    if (isGone) iface.network.noticeLoss(iface, this, peerHost);
  }

  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion?: Completion,
  ): Status {
    const isShort = byteLength <= this.#iface.lane.rmaShortMax && isInside(sourceOffset, byteLength, source.byteLength);
    if (!isShort) return Status.INVALID_PARAM;
    const refused = this.#refusal(rkey, remoteOffset, byteLength);
    if (refused !== Status.OK) return refused;
    const bytes = source.slice(sourceOffset, sourceOffset + byteLength);
    this.#put(this.#begin(completion, undefined), rkey, remoteOffset, byteLength, (memory) => {
      memory.storage.set(bytes, remoteOffset);
      return Status.OK;
    });
    return completion === undefined ? Status.OK : Status.INPROGRESS;
  }

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    const entry = this.#entryOf(iov);
    if (entry === undefined) return Status.INVALID_PARAM;
    const { memory, offset, byteLength } = entry;
    const refused = this.#refusal(rkey, remoteOffset, byteLength);
    if (refused !== Status.OK) return refused;
    const { network, host } = this.#iface;
    let bytes: Uint8Array | undefined;
    const gather = (): void => {
      bytes ??= memory.storage.slice(offset, offset + byteLength);
    };
    if (network.random.below(2) === 0) network.soon(host, gather);
    this.#put(this.#begin(completion, memory), rkey, remoteOffset, byteLength, (target) => {
      gather();
      target.storage.set(bytes!, remoteOffset);
      return Status.OK;
    });
    return Status.INPROGRESS;
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: RemoteKey,
    completion: Completion,
  ): Status {
    const isShort = byteLength <= this.#iface.lane.rmaShortMax && isInside(targetOffset, byteLength, target.byteLength);
    if (!isShort) return Status.INVALID_PARAM;
    const refused = this.#refusal(rkey, remoteOffset, byteLength);
    if (refused !== Status.OK) return refused;
    this.#read(this.#begin(completion, undefined), rkey, remoteOffset, byteLength, (bytes) => {
      target.set(bytes, targetOffset);
    });
    return Status.INPROGRESS;
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    const entry = this.#entryOf(iov);
    if (entry === undefined) return Status.INVALID_PARAM;
    const { memory, offset, byteLength } = entry;
    const refused = this.#refusal(rkey, remoteOffset, byteLength);
    if (refused !== Status.OK) return refused;
    this.#read(this.#begin(completion, memory), rkey, remoteOffset, byteLength, (bytes) => {
      memory.storage.set(bytes, offset);
    });
    return Status.INPROGRESS;
  }

  flush(completion: Completion | undefined): Status {
    if (this.#operations.size === 0) {
      const isNoticed = this.#failure !== Status.OK && this.#lost === Status.OK;
      if (completion === undefined && isNoticed)
        this.#iface.network.onFailureTaken?.(this.#iface.id, this.peerPort, this.#failed);
      return this.#takeFailure();
    }
    if (completion === undefined) return Status.INPROGRESS;
    if (this.#isRefused()) return Status.NO_RESOURCE;
    this.#flushes.push({ completion, waitsFor: new Set(this.#operations) });
    return Status.INPROGRESS;
  }

  fence(): Status {
    return this.#iface.lane.isOrdered || this.#operations.size === 0 ? Status.OK : Status.INPROGRESS;
  }

  amShort(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    const byteLength = headerWords * 4 + payloadLength;
    if (byteLength > this.#iface.lane.amShortMax) return Status.INVALID_PARAM;
    const refused = this.#messageRefusal();
    if (refused !== Status.OK) return refused;
    const frame = new Frame(byteLength, this.#iface.id);
    frame.words.set(header.subarray(0, headerWords));
    if (payload !== undefined) {
      frame.bytes.set(payload.subarray(payloadOffset, payloadOffset + payloadLength), headerWords * 4);
    }
    this.#sendMessage(id, frame);
    return Status.OK;
  }

  /** @param idThere the id with which it arrives, when it has come to the peer */
  amBcopy(id: number, packer: AmPacker, idThere?: () => number): Status {
    const refused = this.#messageRefusal();
    if (refused !== Status.OK) return refused;
    const frame = new Frame(this.#iface.lane.amBcopyMax, this.#iface.id);
    const byteLength = packer.pack(frame);
    if (byteLength > frame.byteLength) {
      this.#iface.network.complaints.push(`a message of ${byteLength} bytes was packed into ${frame.byteLength}`);
    }
    frame.byteLength = byteLength;
    this.#sendMessage(id, frame, idThere);
    return Status.OK;
  }

  get putsStarted(): number | undefined {
    return this.#iface.lane.isOrdered ? this.#putsStarted : undefined;
  }

  amAfterPuts(id: number, failedId: number, packer: AmPacker, puts: number): Status {
    return this.amBcopy(id, packer, () => (this.#putsInRow >= puts ? id : failedId));
  }

  atomic(call: AtomicCall, remoteOffset: number, rkey: RemoteKey, completion: Completion): Status {
    const refused = this.#refusal(rkey, remoteOffset, call.wordBytes);
    if (refused !== Status.OK) return refused;
    const operation = this.#begin(completion, undefined);
    const remote: AtomicCall = { ...call };
    this.#reach(
      operation,
      rkey,
      remoteOffset,
      call.wordBytes,
      (memory) => new AtomicWords(memory.storage).run(remote, remoteOffset),
      () => {
        call.result32 = remote.result32;
        call.result64 = remote.result64;
      },
    );
    return Status.INPROGRESS;
  }

  check(): Status {
    return this.#lost;
  }

  /** Operations in flight continue. */
  close(): void {
    if (this.#isClosed) this.#iface.network.complaints.push('an endpoint was closed twice');
    this.#isClosed = true;
    this.#retire();
  }

  /** The peer is lost: operations in flight fail. */
  lose(status: Status): void {
    if (this.#lost !== Status.OK) return;
    this.#lost = status;
    for (const operation of [...this.#operations]) this.#end(operation, Status.CONNECTION_RESET);
  }

  /** Refuses puts, gets and atomic operations. */
  #refusal(rkey: RemoteKey, offset: number, byteLength: number): Status {
    if (this.#isClosed) this.#iface.network.complaints.push('a closed endpoint was used');
    if (this.#lost !== Status.OK) return Status.CONNECTION_RESET;
    if (!isInside(offset, byteLength, rkey.byteLength)) return Status.INVALID_ADDR;
    return this.#operations.size >= this.#iface.lane.window || this.#isRefused() ? Status.NO_RESOURCE : Status.OK;
  }

  #messageRefusal(): Status {
    if (this.#isClosed) this.#iface.network.complaints.push('a closed endpoint was used');
    if (this.#lost !== Status.OK) return Status.CONNECTION_RESET;
    return this.#messages >= this.#iface.lane.window || this.#isRefused() ? Status.NO_RESOURCE : Status.OK;
  }

  /** Refuses without a reason; sleepers on the interface are woken soon. */
  #isRefused(): boolean {
    const { network, host, lane } = this.#iface;
    if (lane.refusals === 0 || network.random.below(256) >= lane.refusals) return false;
    this.#iface.messages += 1;
    network.soon(host, () => {
      this.#iface.messages -= 1;
      this.#iface.wake();
    });
    return true;
  }

  #entryOf(iov: readonly IovEntry[]): (IovEntry & { readonly memory: SimulatedMemory }) | undefined {
    const [entry] = iov;
    if (iov.length !== 1 || entry === undefined || !(entry.memory instanceof SimulatedMemory)) return undefined;
    const { memory, offset, byteLength } = entry;
    const { zcopyMin, zcopyMax } = this.#iface.lane;
    if (byteLength < zcopyMin || byteLength > zcopyMax) return undefined;
    if (!memory.live || !isInside(offset, byteLength, memory.byteLength)) return undefined;
    return { memory, offset, byteLength };
  }

  #begin(completion: Completion | undefined, memory: SimulatedMemory | undefined): Operation {
    const { network } = this.#iface;
    network.operations += 1;
    const operation: Operation = { completion, memory, number: network.operations, hasEnded: false };
    this.#operations.add(operation);
    this.#iface.operations += 1;
    if (completion !== undefined) this.#iface.awaited += 1;
    if (memory !== undefined) memory.inFlight += 1;
    return operation;
  }

  #end(operation: Operation, status: Status): void {
    if (operation.hasEnded) return;
    operation.hasEnded = true;
    this.#operations.delete(operation);
    this.#iface.operations -= 1;
    if (operation.memory !== undefined) operation.memory.inFlight -= 1;
    if (operation.completion !== undefined) {
      this.#iface.awaited -= 1;
      completeOne(operation.completion, status);
    }
    if (operation.completion === undefined && status < 0 && this.#failure === Status.OK) {
      this.#failure = status;
      this.#failed = operation.number;
    }
    for (const flush of this.#flushes) flush.waitsFor.delete(operation);
    const ended = this.#flushes.filter(({ waitsFor }) => waitsFor.size === 0);
    if (ended.length > 0) this.#flushes = this.#flushes.filter(({ waitsFor }) => waitsFor.size > 0);
    for (const { completion } of ended) completeOne(completion, this.#takeFailure());
    this.#retire();
  }

  /** Removes an endpoint that is closed and has nothing in flight. */
  #retire(): void {
    if (this.#isClosed && this.#operations.size === 0) this.#iface.endpoints.delete(this);
  }

  #takeFailure(): Status {
    const failure = this.#lost === Status.OK ? this.#failure : Status.CONNECTION_RESET;
    this.#failure = Status.OK;
    return failure;
  }

  /** Accesses the memory behind a key, and ends the operation with the result. */
  #reach(
    operation: Operation,
    rkey: RemoteKey,
    offset: number,
    byteLength: number,
    work: RemoteWork,
    answered?: () => void,
    served?: (status: Status) => void,
  ): void {
    const { network, lane } = this.#iface;
    const peer = this.#peer();
    if (peer === undefined) return;
    const serve = (): void => {
      const found = peer.md.find((rkey as SimulatedKey).packed, offset, byteLength);
      const status = found instanceof SimulatedMemory ? work(found) : found;
      served?.(status);
      const atOnce = status === Status.OK ? answered : undefined;
      const arrival = (): void => this.#end(operation, status);
      network.send(this.#back, this.#iface, {
        isOrdered: lane.isOrdered,
        atOnce: this.#unless(operation, atOnce),
        arrival,
      });
    };
    // A card at the other end accesses memory without progress of its owner.
    const sending = lane.isOffloaded ? { atOnce: serve } : { arrival: serve };
    network.send(this.#there, peer, { isOrdered: lane.isOrdered, ...sending });
  }

  #put(operation: Operation, rkey: RemoteKey, offset: number, byteLength: number, work: RemoteWork): void {
    this.#putsStarted += 1;
    this.#reach(operation, rkey, offset, byteLength, work, undefined, (status) => {
      this.#putsInRow = status === Status.OK ? this.#putsInRow + 1 : 0;
    });
  }

  #read(
    operation: Operation,
    rkey: RemoteKey,
    offset: number,
    byteLength: number,
    store: (bytes: Uint8Array) => void,
  ): void {
    let bytes: Uint8Array;
    const load: RemoteWork = (memory) => {
      bytes = memory.storage.slice(offset, offset + byteLength);
      return Status.OK;
    };
    this.#reach(operation, rkey, offset, byteLength, load, () => store(bytes));
  }

  /** A cancelled operation does not access the memory of the caller any more. */
  #unless(operation: Operation, run: (() => void) | undefined): (() => void) | undefined {
    if (run === undefined) return undefined;
    return () => {
      if (!operation.hasEnded) run();
    };
  }

  #sendMessage(sentId: number, frame: Frame, idThere?: () => number): void {
    const { network, lane } = this.#iface;
    this.#messages += 1;
    this.#iface.messages += 1;
    const operation = lane.flushesMessages ? this.#begin(undefined, undefined) : undefined;
    const peer = this.#peer();
    if (peer === undefined) return;
    const deliver = (id: number): void => {
      peer.handler?.(id, frame);
      frame.bytes.fill(POISON);
      const atOnce = (): void => {
        this.#messages -= 1;
        this.#iface.messages -= 1;
        this.#iface.wake();
      };
      const arrival = operation === undefined ? undefined : (): void => this.#end(operation, Status.OK);
      network.send(this.#back, this.#iface, { isOrdered: lane.isOrdered, atOnce, arrival });
    };
    let id = sentId;
    // Earlier accesses of the card were before it; those until the peer makes progress were not.
    const atOnce = (): void => {
      if (lane.isOffloaded && idThere !== undefined) id = idThere();
    };
    const arrival = (): void => {
      if (!lane.isOffloaded && idThere !== undefined) id = idThere();
      deliver(id);
    };
    network.send(this.#there, peer, { isOrdered: true, atOnce, arrival });
  }

  /** The interface of the peer; undefined for a closed one: messages to it are lost. */
  #peer(): SimulatedIface | undefined {
    return this.#iface.network.port(this.peerPort) as SimulatedIface | undefined;
  }
}
