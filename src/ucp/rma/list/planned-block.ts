/** A block of a list with the lane that carries it. It is moved by list-move.ts. */

import type { ListBlock } from '../../../api/list/list.ts';
import { hostBytes } from '../../../api/memory/local.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import type { Status } from '../../../ucs/type/status.ts';
import { type Completion, IfaceFlag, type IovEntry } from '../../../uct/api/iface.ts';
import type { MdMemory, RemoteKey as UctRemoteKey } from '../../../uct/api/memory.ts';
import type { PeerConnection } from '../../base/peer-connection.ts';
import { NO_MEMORY } from '../../base/request/rma-request.ts';
import type { Lane } from '../../lane/lane.ts';
import type { LocalMemory } from '../../mem/memory-handle.ts';
import type { OperationRegistrar } from '../../mem/memory-map.ts';
import type { RemoteKey } from '../../mem/remote-key.ts';
import { type Candidate, costNs, Operation, type Plan, Protocol } from '../../proto/selection.ts';
import { chooseCandidate, planFor } from '../plan.ts';
import { initEntry, type LocalMemoryIndex, type RegisteringOwner } from '../transfer.ts';

/** The operation with this name. */
export function operationOf(operation: 'put' | 'get'): Operation {
  return operation === 'put' ? Operation.PUT : Operation.GET;
}

/** Registers the host memory of a list that is not mapped. */
export interface BlockRegistrar {
  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory;
}

/** For prepared lists, which hold nothing: they have mapped memory only. */
export const MAPPED_ONLY: BlockRegistrar = {
  register: (_registrar, bytes) => {
    throw invalidParam('local', 'must be mapped memory in a prepared list', bytes.byteLength);
  },
};

/** A block. It is itself the one entry of a zero-copy list, because a move has thousands of blocks, and each further object is a cache miss. */
export class PlannedBlock implements RegisteringOwner, IovEntry {
  readonly local: LocalMemory;
  readonly localOffset: number;
  readonly rkey: RemoteKey;
  readonly remoteOffset: number;
  readonly byteLength: number;
  /** The local memory in the memory domain of the lane, and the offset in it; not used by short operations. */
  memory: MdMemory = NO_MEMORY;
  offset = 0;
  /** Number of the entry of the list. */
  readonly entry: number;
  /** The lane; undefined for a block that the worker of the peer moves. */
  readonly lane: Lane | undefined;
  readonly protocol: Protocol;
  readonly #operation: Operation;
  readonly #part: UctRemoteKey | undefined;
  /** Local bytes of a short operation. */
  readonly #bytes: Uint8Array | undefined;
  readonly #registrar: BlockRegistrar;
  /** The parts of a block that several devices share, which are started instead of it. */
  parts: readonly PlannedBlock[] | undefined = undefined;

  /**
   * @param candidate the candidate that carries it; undefined for the best one
   * @throws UcxError ERR_UNREACHABLE, or what registering the local memory throws
   */
  constructor(
    operation: Operation,
    { local, localOffset, rkey, remoteOffset, byteLength, entry }: ListBlock,
    connection: PeerConnection,
    context: LocalMemoryIndex,
    registrar: BlockRegistrar,
    candidate?: Candidate,
  ) {
    this.local = local as LocalMemory;
    this.localOffset = localOffset;
    this.rkey = rkey as RemoteKey;
    this.remoteOffset = remoteOffset;
    this.byteLength = byteLength;
    this.entry = entry;
    this.#operation = operation;
    this.#registrar = registrar;
    const plan = planFor(operation, this.local, this.rkey, connection);
    const { protocol, lane: index } =
      candidate ??
      bestOf(plan, connection, byteLength) ??
      chooseCandidate(plan, operation, this.local, this.rkey, byteLength);
    this.protocol = protocol;
    const lane = protocol === Protocol.SOFTWARE ? undefined : connection.lanes[index]!;
    this.lane = lane;
    this.#part = lane === undefined ? undefined : this.rkey.parts[lane.md.index];
    this.#bytes = protocol === Protocol.SHORT ? hostBytes(this.local) : undefined;
    if (protocol === Protocol.ZCOPY) initEntry(this, this.local, localOffset, byteLength, lane!.md.index, context);
  }

  setEntry(memory: MdMemory, offset: number): void {
    this.memory = memory;
    this.offset = offset;
  }

  register(registrar: OperationRegistrar, bytes: Uint8Array): MdMemory {
    return this.#registrar.register(registrar, bytes);
  }

  /**
   * Starts the block on its lane: the status of the transport.
   * @param iov the block alone
   */
  start(iov: readonly PlannedBlock[], completion: Completion): Status {
    const { endpoint, activity } = this.lane!;
    activity.busy = true;
    const { localOffset, remoteOffset, byteLength } = this;
    const part = this.#part!;
    const bytes = this.#bytes;
    if (bytes === undefined) {
      return this.#operation === Operation.PUT
        ? endpoint.putZcopy(iov, remoteOffset, part, completion)
        : endpoint.getZcopy(iov, remoteOffset, part, completion);
    }
    return this.#operation === Operation.PUT
      ? endpoint.putShort(bytes, localOffset, byteLength, remoteOffset, part, completion)
      : endpoint.getShort(bytes, localOffset, byteLength, remoteOffset, part, completion);
  }
}

/**
 * The best zero-copy candidate, or the best short one of a CPU that reaches the remote memory: other short operations need a resource of their own for each
 * block, and start it at once. Undefined if there is none.
 */
function bestOf(plan: Plan, { lanes }: PeerConnection, byteLength: number): Candidate | undefined {
  let best: Candidate | undefined;
  for (const candidate of plan.candidates) {
    const { protocol, lane, bytesMin, bytesMax } = candidate;
    const isCpu = (lanes[lane]!.iface.attributes.flags & IfaceFlag.CPU_ACCESS) !== 0;
    const isFit = protocol === Protocol.ZCOPY || (protocol === Protocol.SHORT && isCpu);
    if (!isFit || byteLength < bytesMin || byteLength > bytesMax) continue;
    if (best === undefined || costNs(candidate, byteLength) < costNs(best, byteLength)) best = candidate;
  }
  return best;
}
