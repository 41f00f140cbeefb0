/** The common part of endpoints whose transfers are those of the DMA engines of one card: their order and their end. It does not find the remote memory. */

import type { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import { RmaOnlyEndpoint } from '../../base/iface.ts';
import { type DmaTransfers, ShortPuts } from './dma-transfers.ts';

/** The endpoint. @typeParam K its remote keys */
export abstract class DmaEndpoint<K> extends RmaOnlyEndpoint {
  protected readonly transfers: DmaTransfers;
  protected readonly shortPuts: ShortPuts = new ShortPuts();

  constructor(transfers: DmaTransfers) {
    super();
    this.transfers = transfers;
  }

  /** Starts a put, or a get, of a list. */
  protected abstract zcopy(
    iov: readonly IovEntry[],
    remoteOffset: number,
    rkey: K,
    completion: Completion,
    isPut: boolean,
  ): Status;

  putZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: K, completion: Completion): Status {
    return this.zcopy(iov, remoteOffset, rkey, completion, true);
  }

  getZcopy(iov: readonly IovEntry[], remoteOffset: number, rkey: K, completion: Completion): Status {
    return this.zcopy(iov, remoteOffset, rkey, completion, false);
  }

  cork(): void {
    this.transfers.dma.cork();
  }

  uncork(): void {
    this.transfers.dma.uncork();
  }

  flush(completion: Completion | undefined): Status {
    return this.transfers.counters.flush(this.transfers.flush(completion, this.shortPuts));
  }

  /** Transfers of one direction keep their order, those of different directions do not: the fence waits for all started ones. */
  fence(): Status {
    return this.transfers.counters.fence(this.transfers.flush(undefined, this.shortPuts));
  }

  close(): void {}
}
