/** The endpoint of gaudi_cpy: turns put and get into DMA transfers of one card. It does not select transports, but rejects what a card cannot do. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry, UctEndpoint } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { isInside } from '../../base/checks.ts';
import { Transfer } from '../../base/counters.ts';
import { SHORT_BYTES_MAX } from '../base/card/dma-limits.ts';
import { DmaEndpoint } from '../base/dma-endpoint.ts';
import { GaudiMemory, RegisteredMemory } from '../base/memory/gaudi-memory.ts';
import type { CopyKey } from './copy-key.ts';

/** The endpoint. */
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
    const refused = this.#checkShort(memory, remoteOffset, source, sourceOffset, byteLength);
    if (refused !== Status.OK) return refused;
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
    const refused = this.#checkShort(memory, remoteOffset, target, targetOffset, byteLength);
    if (refused !== Status.OK) return refused;
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
    const status = this.transfers.list(iov, there, remoteHost, at, completion, isPut);
    if (status < 0) return this.transfers.counters.refused(status);
    this.transfers.counters.zcopy(isPut ? Transfer.PUT : Transfer.GET, total);
    return status;
  }

  /** Checks that a short operation accesses memory of this card; returns OK or the reason. */
  #checkShort(
    memory: GaudiMemory,
    remoteOffset: number,
    local: Uint8Array,
    localOffset: number,
    byteLength: number,
  ): Status {
    if (memory.sysDevice !== this.transfers.card.index) return Status.UNREACHABLE;
    if (!(byteLength > 0 && byteLength <= SHORT_BYTES_MAX) || !isInside(localOffset, byteLength, local.byteLength)) {
      return Status.INVALID_PARAM;
    }
    return memory.live && isInside(remoteOffset, byteLength, memory.byteLength) ? Status.OK : Status.INVALID_ADDR;
  }

  /** Checks a list before any transfer; returns its bytes, or the reason. */
  #checkIov(iov: readonly IovEntry[], remoteOffset: number, remote: MdMemory): number {
    const { iovMax } = this.transfers;
    if (iov.length > iovMax) throw invalidParam('iov', `must have at most ${iovMax} entries`, iov.length);
    let total = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      const refused = this.transfers.checkSide(entry.memory, entry.offset, entry.byteLength);
      if (refused !== Status.OK) return refused;
      // A card cannot copy from host to host.
      if (entry.memory instanceof RegisteredMemory && remote instanceof RegisteredMemory) return Status.UNSUPPORTED;
      total += entry.byteLength;
    }
    const refused = this.transfers.checkSide(remote, remoteOffset, total);
    return refused === Status.OK ? total : refused;
  }
}
