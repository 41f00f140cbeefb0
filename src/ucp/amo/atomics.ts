/**
 * Atomic operations on words of remote memory: offloaded to a transport that supports them, otherwise executed by the worker of the peer, one after the
 * other. Operations of different kinds are not atomic with each other, so a program must access each word by one kind only.
 */

import { ATOMIC_ACCESS } from '../../api/contract/memory.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { readAtomic, writeAtomic } from '../../api/layout/rma.ts';
import { checkRemoteWord } from '../../api/memory/owned.ts';
import { Operation } from '../../api/operation/call.ts';
import { ENDED_IN_CALL } from '../../api/operation/completion.ts';
import { modifyWord, WordOperation } from '../../api/operation/word-operation.ts';
import { DeviceWords } from '../../api/staging/device-copier.ts';
import { MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AmFrame, AtomicOperation, IfaceFlag } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';
import { sendMessage } from '../base/message-packer.ts';
import { isObserved, WorkerCounter } from '../base/observation.ts';
import type { AtomicRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import type { Lane } from '../lane/lanes.ts';
import { MEMORY_KEY_BYTES, type MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply, postWord } from '../rndv/reply.ts';
import { planFor, reasonsOf } from '../transfer/plan.ts';

const NO_BYTES = new Uint8Array(0);
const ATOMIC_OPERATIONS: ReadonlySet<number> = new Set(Object.values(AtomicOperation));

/** The atomic operations of one worker: those that it starts, and those that it executes for peers. */
export class AtomicProtocol {
  readonly #host: WorkerCore;
  readonly #deviceWords: DeviceWords;
  /** Arguments of the operation that is being started. */
  readonly word: WordOperation = new WordOperation();

  constructor(host: WorkerCore, rendezvous: Rendezvous) {
    this.#host = host;
    this.#deviceWords = new DeviceWords(rendezvous.staging);
  }

  /** Starts the operation in {@link word} on remote memory: see Endpoint.atomicNbx. */
  start(call: UcpCall): Status | Request {
    const { requests } = this.#host;
    const { connection, rkey, remoteOffset } = call;
    const { word } = this;
    checkRemoteWord(connection, call);
    if (connection.failure !== Status.OK) return connection.failure;
    const lane = laneFor(connection, rkey, word.wordBytes);
    const isImmediate = call.isImmediate && !connection.hasPending && !isObserved();
    if (isImmediate && lane !== undefined && (lane.iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0) {
      // A failure of the transport is not reported here: the start with a request below repeats and reports it.
      const status = lane.endpoint.atomic(word, remoteOffset, rkey.parts[lane.md.index]!, ENDED_IN_CALL);
      if (status === Status.OK) return status;
    }
    const request = requests.take(requests.atomics);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(connection, lane ?? connection.amLane);
    request.call.copyFrom(word);
    request.rkey = rkey;
    request.remoteOffset = remoteOffset;
    request.byteLength = word.wordBytes;
    request.protocolName = lane === undefined ? 'amo/am' : 'amo/offload';
    request.isRemote = lane === undefined;
    request.starter = lane === undefined ? requestFromOwner : startOffload;
    return this.#host.start(request, call.params);
  }

  /** Executes an operation that a peer requests on memory of this worker. */
  onAtomic(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const {
      request: peerRequest,
      remoteOffset: from,
      keyAt,
      keyBytes,
      value,
      compare,
      ...requested
    } = readAtomic(frame);
    const { operation } = requested;
    const wordBytes = requested.wordBytes === 8 ? 8 : 4;
    const isKeyed = keyBytes >= MEMORY_KEY_BYTES;
    const memory = isKeyed ? this.#host.context.memory.exported.find(frame.bytes, keyAt, ATOMIC_ACCESS) : undefined;
    const isAligned = from % wordBytes === 0;
    if (memory === undefined || !isAtomicOperation(operation) || !isAligned || from + wordBytes > memory.byteLength) {
      postReply(connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    this.#host.counters.count(WorkerCounter.ATOMIC_SW);
    const call = WordOperation.of(operation, wordBytes, value, compare);
    const replied = (status: Status): void => replyWith(connection, peerRequest, status, call);
    if (!memory.mapped) postReply(connection, peerRequest, Status.INVALID_ADDR);
    else if (memory.memoryType === MemoryType.HOST || memory.bytes !== undefined)
      replied(this.#modify(memory, from, call));
    else this.#deviceWords.modify(memory, from, call, replied);
  }

  /** Modifies a word that this process can access. Uses a transport, if possible, so that the operation is atomic with those of peers on that transport. */
  #modify(memory: MemoryHandle, offset: number, call: WordOperation): Status {
    if (memory.memoryType === MemoryType.HOST) {
      let key: RemoteKey;
      try {
        key = this.#host.ownKeys.keyOf(memory);
      } catch (error) {
        // For example, no descriptors are left for the connection of this worker to itself.
        if (!isUcxError(error)) throw error;
        return error.status;
      }
      const lane = laneFor(this.#host.loopback, key, call.wordBytes);
      if (lane !== undefined) return lane.endpoint.atomic(call, offset, key.parts[lane.md.index]!, ENDED_IN_CALL);
    }
    return modifyWord(memory.bytes!, offset, call);
  }
}

/** Replies with the value of the word before the operation. */
function replyWith(connection: Connection, peerRequest: number, status: Status, { result }: WordOperation): void {
  postWord(connection, peerRequest, status, result);
}

/** Requests the operation from the worker that owns the memory. */
function requestFromOwner(request: AtomicRequest, connection: Connection): Status {
  const { call, remoteOffset } = request;
  const rkey = request.rkey!;
  const { memoryKey } = rkey;
  if (memoryKey === undefined || connection.am === undefined) throw unreachable(connection, rkey);
  if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
  if (request.requestId === 0) {
    request.replyHandler = endWithWord;
    connection.expect(request);
  }
  const { operation, wordBytes, value, compare } = call;
  const requested = { request: request.requestId, remoteOffset, operation, wordBytes, value, compare };
  const header = writeAtomic(connection.remoteId, requested);
  const status = sendMessage(connection, MessageId.ATOMIC, header, memoryKey, 0, memoryKey.byteLength);
  return status === Status.OK ? Status.INPROGRESS : status;
}

/** Ends an operation with the reply of the owner. */
function endWithWord(request: Request, status: Status, low: number, high: number): void {
  (request as AtomicRequest).call.result = joinBig(low, high);
  request.end(status);
}

/** The error if no transport supports atomics on the memory of a key and its worker cannot execute them either. */
function unreachable(connection: Connection, rkey: RemoteKey): UcxError {
  const reasons = reasonsOf(planFor({ operation: Operation.PUT, connection, local: NO_BYTES, rkey }), rkey);
  const memory = memoryTypeName(rkey.memoryType);
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `no lane supports atomics on remote ${memory} memory (${reasons})`,
    details: { reasons },
  });
}

/** True if a number from a message is a known operation. */
function isAtomicOperation(value: number): value is AtomicOperation {
  return ATOMIC_OPERATIONS.has(value);
}

function startOffload(request: AtomicRequest): Status {
  const { endpoint, md, activity } = request.lane!;
  activity.busy = true;
  return endpoint.atomic(request.call, request.remoteOffset, request.rkey!.parts[md.index]!, request);
}

/** The lane with the lowest latency that supports atomics on words of this memory; chosen once for each key. */
function laneFor(connection: Connection, rkey: RemoteKey, wordBytes: number): Lane | undefined {
  const { lanes } = connection;
  if (wordBytes === 4) {
    rkey.atomicLane32 ??= fastestLane(lanes, rkey, IfaceFlag.ATOMIC32);
    return lanes[rkey.atomicLane32];
  }
  rkey.atomicLane64 ??= fastestLane(lanes, rkey, IfaceFlag.ATOMIC64);
  return lanes[rkey.atomicLane64];
}

/** Index of that lane; -1 for none. */
function fastestLane(lanes: readonly Lane[], rkey: RemoteKey, flag: number): number {
  let fastest = -1;
  for (const [index, { iface, md }] of lanes.entries()) {
    const { flags, performance } = iface.attributes;
    if ((flags & flag) === 0 || rkey.parts[md.index] === undefined) continue;
    const best = lanes[fastest]?.iface.attributes.performance.latencyNs ?? Number.POSITIVE_INFINITY;
    if (performance.latencyNs < best) fastest = index;
  }
  return fastest;
}
