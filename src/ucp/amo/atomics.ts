/**
 * Atomic operations on words of remote memory: by a transport where one has them, else by the worker of the peer, which runs them one after
 * the other. Both are atomic among themselves; a program uses one word in one way.
 */

import { MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { highWord, joinBig, lowWord } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { type AmFrame, AtomicOperation, type Completion, IfaceFlag } from '../../uct/api/iface.ts';
import { checkRemoteWord } from '../api/owned-remote-key.ts';
import type { AtomicName, AtomicParams } from '../api/request.ts';
import { checkWordOperation, modifyWord, WordOperation } from '../api/word-operation.ts';
import { sendMessage } from '../base/message-packer.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import type { Connection, Request } from '../base/request.ts';
import type { AtomicRequest } from '../base/rma-request.ts';
import { WorkerCounter } from '../base/worker-counters.ts';
import type { Lane } from '../lane/lane.ts';
import { MEMORY_KEY_BYTES } from '../mem/exported-memory.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { Operation } from '../proto/selection.ts';
import { planFor, refusalsOf } from '../rma/plan.ts';
import type { Rendezvous } from '../rndv/rendezvous.ts';
import { postReply } from '../rndv/reply.ts';
import { DeviceWords } from '../staging/device-words.ts';
import { readAtomic, writeAtomic } from '../wire/atomic.ts';
import { NO_ENDPOINT } from '../wire/frame.ts';
import { MessageId } from '../wire/message.ts';

const NO_BYTES = new Uint8Array(0);
const ATOMIC_OPERATIONS: ReadonlySet<number> = new Set(Object.values(AtomicOperation));

/** An operation on a word of own memory. */
type LocalOperation = (call: WordOperation, offset: number) => Status;

/** The atomic operations of one worker, of both ends. */
export class AtomicProtocol {
  readonly #host: ProtocolHost;
  readonly #deviceWords: DeviceWords<MemoryHandle>;

  constructor(host: ProtocolHost, rendezvous: Rendezvous) {
    this.#host = host;
    this.#deviceWords = new DeviceWords(rendezvous.staging);
  }

  /** See Endpoint.atomicNbx. */
  start(
    connection: Connection,
    name: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params: AtomicParams | undefined,
  ): Status | Request {
    const call = checkWordOperation(name, value, params);
    checkRemoteWord(connection, rkey, remoteOffset, call.wordBytes);
    if (connection.failure !== Status.OK) return connection.failure;
    const request = this.#host.requests.take(this.#host.requests.atomics);
    if (request === undefined) return Status.NO_RESOURCE;
    const lane = laneFor(connection, rkey, call.wordBytes);
    request.begin(connection, lane ?? connection.amLane);
    request.call = call;
    request.byteLength = call.wordBytes;
    request.protocolName = lane === undefined ? 'amo/am' : 'amo/offload';
    request.isRemote = lane === undefined;
    request.starter =
      lane === undefined
        ? () => this.#ask(request, connection, call, rkey, remoteOffset)
        : () => startOffload(request, call, lane, rkey, remoteOffset);
    return this.#host.start(request, params);
  }

  /** The peer asks for an operation on memory of this worker. */
  onAtomic(frame: AmFrame): void {
    const connection = this.#host.connectionOf(frame);
    if (connection === undefined) return;
    const { request: peerRequest, remoteOffset: from, keyAt, keyBytes, value, compare, ...asked } = readAtomic(frame);
    const { operation } = asked;
    const wordBytes = asked.wordBytes === 8 ? 8 : 4;
    const memory = keyBytes >= MEMORY_KEY_BYTES ? this.#host.context.exported.find(frame.bytes, keyAt) : undefined;
    const isAligned = from % wordBytes === 0;
    if (memory === undefined || !isAtomicOperation(operation) || !isAligned || from + wordBytes > memory.byteLength) {
      postReply(connection, peerRequest, Status.INVALID_ADDR);
      return;
    }
    this.#host.counters.count(WorkerCounter.ATOMIC_SW);
    const call = new WordOperation(operation, wordBytes, value, compare);
    this.#serve(connection, peerRequest, memory, from, call);
  }

  #serve(connection: Connection, peerRequest: number, memory: MemoryHandle, offset: number, call: WordOperation): void {
    const end = (status: Status): void => {
      const low = lowWord(call.result);
      const high = highWord(call.result);
      postReply(connection, peerRequest, status, low, high);
    };
    if (!memory.mapped) {
      end(Status.INVALID_ADDR);
      return;
    }
    let lane: LocalOperation | undefined;
    try {
      lane = this.#localLane(memory, call.wordBytes);
    } catch (error) {
      // Such as no descriptors for the connection of this worker to itself.
      if (!isUcxError(error)) throw error;
      end(error.status);
      return;
    }
    if (lane !== undefined) end(lane(call, offset));
    else if (memory.bytes !== undefined) end(modifyWord(memory.bytes, offset, call));
    else this.#deviceWords.modify(memory, offset, call, end);
  }

  /** The operation of a transport on own memory, so that it is atomic with peers that use the transport too. */
  #localLane(memory: MemoryHandle, wordBytes: number): LocalOperation | undefined {
    if (memory.memoryType !== MemoryType.HOST) return undefined;
    const { context, loopback } = this.#host;
    const rkey = context.unpackRkey(context.packRkey(memory), loopback, { messages: false });
    const lane = laneFor(loopback, rkey, wordBytes);
    if (lane === undefined) {
      rkey.release();
      return undefined;
    }
    return (call, offset) => {
      const status = lane.endpoint.atomic(call, offset, rkey.parts[lane.md.index]!, ENDED_AT_ONCE);
      rkey.release();
      return status;
    };
  }

  #ask(
    request: AtomicRequest,
    connection: Connection,
    call: WordOperation,
    rkey: RemoteKey,
    remoteOffset: number,
  ): Status {
    const { memoryKey } = rkey;
    if (memoryKey === undefined || connection.am === undefined) throw unreachable(connection, rkey);
    if (connection.remoteId === NO_ENDPOINT) return Status.NO_RESOURCE;
    if (request.requestId === 0) {
      request.replyHandler = (asked, status, low, high) => {
        call.result = joinBig(low, high);
        asked.end(status);
      };
      connection.expect(request);
    }
    const { requestId } = request;
    const { operation, wordBytes, value, compare } = call;
    const asked = { request: requestId, remoteOffset, operation, wordBytes, value, compare };
    const header = writeAtomic(connection.remoteId, asked);
    const status = sendMessage(connection, MessageId.ATOMIC, header, memoryKey, 0, memoryKey.byteLength);
    return status === Status.OK ? Status.INPROGRESS : status;
  }
}

/** No transport has atomic operations on the memory of a key, and its worker cannot be asked. */
function unreachable(connection: Connection, rkey: RemoteKey): UcxError {
  const reasons = refusalsOf(planFor(Operation.PUT, NO_BYTES, rkey, connection), rkey);
  const memory = memoryTypeName(rkey.memoryType);
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `nothing has atomic operations on this remote ${memory} memory (${reasons})`,
    details: { reasons },
  });
}

/** Whether a number of a message names an operation. */
function isAtomicOperation(value: number): value is AtomicOperation {
  return ATOMIC_OPERATIONS.has(value);
}

/** Takes the end of an operation that has ended when its call returns. */
const ENDED_AT_ONCE: Completion = { count: 1, failure: Status.OK, onComplete: () => {} };

function startOffload(
  request: AtomicRequest,
  call: WordOperation,
  lane: Lane,
  rkey: RemoteKey,
  remoteOffset: number,
): Status {
  lane.activity.busy = true;
  return lane.endpoint.atomic(call, remoteOffset, rkey.parts[lane.md.index]!, request);
}

/** The lane with atomic operations on words of this memory that has the lowest latency. */
function laneFor({ lanes }: Connection, rkey: RemoteKey, wordBytes: number): Lane | undefined {
  const flag = wordBytes === 4 ? IfaceFlag.ATOMIC32 : IfaceFlag.ATOMIC64;
  const able = lanes.filter(
    ({ iface, md }) => (iface.attributes.flags & flag) !== 0 && rkey.parts[md.index] !== undefined,
  );
  const latency = ({ iface }: Lane): number => iface.attributes.performance.latencyNs;
  return able.sort((left, right) => latency(left) - latency(right))[0];
}
