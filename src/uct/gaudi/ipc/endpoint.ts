/**
 * The endpoint of gaudi_ipc: turns put and get into DMA transfers of the local card from and to imported memory. The first use of a key requests its memory,
 * and operations return NO_RESOURCE until the memory is available.
 */

import { hasEnded, type ProcessIdentity } from '../../../sys/index.ts';
import { invalidParam, isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry, UctEndpoint } from '../../api/iface.ts';
import { isInside } from '../../base/checks.ts';
import { Transfer } from '../../base/counters.ts';
import { IOV_MAX } from '../base/config.ts';
import { canShort, DmaEndpoint, type DmaTransfers } from '../base/transfers.ts';
import { ownerEnded, staleKey } from './config.ts';
import type { Imports } from './imports.ts';
import type { Channel, Channels, IpcKey } from './key.ts';

/** State that the endpoints of one interface share. */
export class IpcShared {
  readonly transfers: DmaTransfers;
  readonly imports: Imports;
  /** The cause of the last failed status, for errorOf; undefined if the status explains itself. */
  error: UcxError | undefined = undefined;
  readonly #channels: Channels;
  readonly #device: string;

  /** @param device name of the local card in channels */
  constructor(transfers: DmaTransfers, imports: Imports, channels: Channels, device: string) {
    this.transfers = transfers;
    this.imports = imports;
    this.#channels = channels;
    this.#device = device;
  }

  /** The channel to the card of a key. */
  channelOf(key: IpcKey): Channel {
    return this.#channels.between(this.#device, key.place.busNumber);
  }
}

export class IpcEndpoint extends DmaEndpoint<IpcKey> implements UctEndpoint {
  readonly #peer: ProcessIdentity;
  readonly #shared: IpcShared;
  readonly #position: number;

  constructor(peer: ProcessIdentity, shared: IpcShared) {
    super(shared.transfers);
    this.#peer = peer;
    this.#shared = shared;
    this.#position = shared.transfers.position;
  }

  putShort(
    source: Uint8Array,
    sourceOffset: number,
    byteLength: number,
    remoteOffset: number,
    key: IpcKey,
    completion?: Completion,
  ): Status {
    if (!canShort(source, sourceOffset, byteLength)) return this.#failWith(Status.INVALID_PARAM);
    const failure = this.#checkShort(key, remoteOffset, byteLength);
    if (failure !== Status.OK) return failure;
    const position = this.#position;
    const { target } = this.#used(key);
    const at = key.offsets[position]! + remoteOffset;
    const transfers = this.transfers;
    const status = transfers.putShort(source, sourceOffset, target, at, byteLength, completion, this.shortPuts);
    if (status < 0) return transfers.counters.refused(status);
    key.channels[position]!.count(byteLength, true);
    transfers.counters.short(Transfer.PUT, byteLength);
    return status;
  }

  getShort(
    target: Uint8Array,
    targetOffset: number,
    byteLength: number,
    remoteOffset: number,
    key: IpcKey,
    completion: Completion,
  ): Status {
    if (!canShort(target, targetOffset, byteLength)) return this.#failWith(Status.INVALID_PARAM);
    const failure = this.#checkShort(key, remoteOffset, byteLength);
    if (failure !== Status.OK) return failure;
    const position = this.#position;
    const source = this.#used(key).target;
    const at = key.offsets[position]! + remoteOffset;
    const status = this.transfers.getShort(target, targetOffset, source, at, byteLength, completion);
    if (status < 0) return this.transfers.counters.refused(status);
    key.channels[position]!.count(byteLength, false);
    this.transfers.counters.short(Transfer.GET, byteLength);
    return status;
  }

  override check(): Status {
    if (!hasEnded(this.#peer)) return Status.OK;
    this.#shared.error = ownerEnded(this.#peer);
    return Status.ENDPOINT_TIMEOUT;
  }

  protected zcopy(
    iov: readonly IovEntry[],
    remoteOffset: number,
    key: IpcKey,
    completion: Completion,
    isPut: boolean,
  ): Status {
    if (iov.length > IOV_MAX) throw invalidParam('iov', `must have at most ${IOV_MAX} entries`, iov.length);
    let total = 0;
    for (let i = 0; i < iov.length; i++) {
      const entry = iov[i]!;
      const failure = this.transfers.checkSide(entry.memory, entry.offset, entry.byteLength);
      if (failure !== Status.OK) return this.#failWith(failure);
      total += entry.byteLength;
    }
    if (!isInside(remoteOffset, total, key.byteLength)) return this.#failWith(Status.INVALID_ADDR);
    if (!key.isReady(this.#position)) {
      const status = this.#prepare(key);
      if (status !== Status.OK) return status;
    }
    const position = this.#position;
    const { target } = this.#used(key);
    const at = key.offsets[position]! + remoteOffset;
    this.transfers.remote.set(target, at, undefined, isPut);
    const status = this.transfers.list(iov, completion);
    if (status < 0) return this.transfers.counters.refused(status);
    key.channels[position]!.count(total, isPut);
    this.transfers.counters.zcopy(isPut ? Transfer.PUT : Transfer.GET, total);
    return status;
  }

  /** Checks a short operation and makes its memory available; returns OK or the reason. */
  #checkShort(key: IpcKey, remoteOffset: number, byteLength: number): Status {
    if (!isInside(remoteOffset, byteLength, key.byteLength)) return this.#failWith(Status.INVALID_ADDR);
    return key.isReady(this.#position) ? Status.OK : this.#prepare(key);
  }

  /** The import for transfers with a key that is ready. */
  #used(key: IpcKey): NonNullable<IpcKey['entries'][number]> {
    const entry = key.entries[this.#position]!;
    this.#shared.imports.cache.touch(entry);
    return entry;
  }

  /** Makes the memory of a key available: OK, NO_RESOURCE, or the failure. Not on the fast path. */
  #prepare(key: IpcKey): Status {
    try {
      if (!key.live) throw staleKey('belongs to memory that is no longer registered');
      const failure = key.takeFailure();
      if (failure !== undefined) throw failure;
      const status = this.#shared.imports.resolve(key, this.#position);
      if (status === Status.OK) key.channels[this.#position] ??= this.#shared.channelOf(key);
      return status;
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#shared.error = error;
      return error.status;
    }
  }

  /** Clears the cause and returns a status that explains itself. */
  #failWith(status: Status): Status {
    this.#shared.error = undefined;
    return status;
  }
}
