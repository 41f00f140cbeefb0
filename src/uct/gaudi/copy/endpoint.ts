/**
 * The endpoint of gaudi_cpy, which turns put and get into DMA transfers of one card and rejects transfers that a card cannot do. Also the names of gaudi_copy,
 * and its remote keys, which are references to the memory because both sides are in this process.
 */

import type { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry, UctEndpoint } from '../../api/iface.ts';
import type { MdMemory, RemoteKey, RemoteKeySource } from '../../api/memory.ts';
import { isInside } from '../../base/checks.ts';
import { Transfer } from '../../base/counters.ts';
import { BlockMemory, type CardMemory, GaudiMemory, RegisteredMemory } from '../base/memory.ts';
import { canShort, DmaEndpoint } from '../base/transfers.ts';

export class CopyEndpoint extends DmaEndpoint<CopyKey> implements UctEndpoint {
  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: CopyKey,
    completion?: Completion,
  ): Status {
    const { memory } = rkey;
    if (!(memory instanceof GaudiMemory)) return Status.UNSUPPORTED;
    if (!canShort(source, sourceOffset, byteLength)) return Status.INVALID_PARAM;
    const failure = this.#checkShort(memory, remoteOffset, byteLength);
    if (failure !== Status.OK) return failure;
    const status = this.transfers.putShort(
      source,
      sourceOffset,
      memory.dmaIn(),
      remoteOffset,
      byteLength,
      completion,
      this.shortPuts,
    );
    if (status < 0) return this.transfers.counters.refused(status);
    this.transfers.counters.short(Transfer.PUT, byteLength);
    return status;
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    rkey: CopyKey,
    completion: Completion,
  ): Status {
    const { memory } = rkey;
    if (!(memory instanceof GaudiMemory)) return Status.UNSUPPORTED;
    if (!canShort(target, targetOffset, byteLength)) return Status.INVALID_PARAM;
    const failure = this.#checkShort(memory, remoteOffset, byteLength);
    if (failure !== Status.OK) return failure;
    const source = memory.dmaIn();
    const status = this.transfers.getShort(target, targetOffset, source, remoteOffset, byteLength, completion);
    if (status < 0) return this.transfers.counters.refused(status);
    this.transfers.counters.short(Transfer.GET, byteLength);
    return status;
  }

  protected zcopy(
    iov: readonly IovEntry[],
    remoteOffset: number,
    rkey: CopyKey,
    completion: Completion,
    isPut: boolean,
  ): Status {
    const remote = rkey.memory;
    const total = this.#checkIov(iov, remoteOffset, remote);
    if (total < 0) return statusOf(total);
    const { position, card } = this.transfers;
    const there = remote.dmaIn(position, card.device);
    const at = remote.dmaOffset + remoteOffset;
    const remoteHost = remote instanceof RegisteredMemory ? remote : undefined;
    this.transfers.remote.set(there, at, remoteHost, isPut);
    const status = this.transfers.list(iov, completion);
    if (status < 0) return this.transfers.counters.refused(status);
    this.transfers.counters.zcopy(isPut ? Transfer.PUT : Transfer.GET, total);
    return status;
  }

  /** Checks that a short operation accesses memory of this card; returns OK or the reason. */
  #checkShort(memory: GaudiMemory, remoteOffset: number, byteLength: number): Status {
    if (memory.sysDevice !== this.transfers.card.index) return Status.UNREACHABLE;
    return memory.live && isInside(remoteOffset, byteLength, memory.byteLength) ? Status.OK : Status.INVALID_ADDR;
  }

  /** Checks a list before any transfer; returns its number of bytes, or the reason. */
  #checkIov(iov: readonly IovEntry[], remoteOffset: number, remote: MdMemory): number {
    const { iovMax } = this.transfers;
    if (iov.length > iovMax) throw invalidParam('iov', `must have at most ${iovMax} entries`, iov.length);
    let total = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      const failure = this.transfers.checkSide(entry.memory, entry.offset, entry.byteLength);
      if (failure !== Status.OK) return failure;
      // A choice of this transport, which cards could serve: other transports copy without crossing PCIe twice.
      if (entry.memory instanceof RegisteredMemory && remote instanceof RegisteredMemory) return Status.UNSUPPORTED;
      total += entry.byteLength;
    }
    const failure = this.transfers.checkSide(remote, remoteOffset, total);
    return failure === Status.OK ? total : failure;
  }
}

/** Name of component and memory domain. */
export const GAUDI_COPY_NAME = 'gaudi_copy';
/**
 * Name of the transport, and the other names that UCX_TLS accepts for it. In UCX 1.20 and later, `gaudi_gdr` stands for memory of cards that RDMA devices
 * register by its dma-buf; here the memory domain of this transport exports it.
 */
export const GAUDI_COPY_TRANSPORT = 'gaudi_cpy';
export const GAUDI_COPY_ALIASES: readonly string[] = ['gaudi_copy', 'gaudi_gdr', 'gaudi'];

/** A remote key of the gaudi_copy domain. */
export class CopyKey implements RemoteKey {
  readonly mdName: string = GAUDI_COPY_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  readonly memory: CardMemory;

  constructor(memory: CardMemory) {
    this.memory = memory;
    this.memoryType = memory.memoryType;
    this.sysDevice = memory.sysDevice;
    this.byteLength = memory.byteLength;
  }

  /** False after the memory was freed or deregistered. */
  get live(): boolean {
    return this.memory.live;
  }

  describe(): RemoteKeySource | undefined {
    const { memory } = this;
    if (!GaudiMemory.isGenuine(memory)) return undefined;
    const { busId } = memory.card.device;
    const { generation, byteLength } = memory;
    const own = { busId, pid: process.pid, channels: [] };
    if (!(memory instanceof BlockMemory)) return { ...own, offset: 0, generation, arenaBytes: byteLength };
    const { block, part } = memory;
    const { generation: ofArena, byteLength: arenaBytes } = block.arena;
    return { ...own, offset: block.offset + (part?.offset ?? 0), generation: ofArena, arenaBytes };
  }

  release(): void {}
}
