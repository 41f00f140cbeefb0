/** The peers that operations of a worker of the native engine wait for, for the warning about idle ones. */

import type { AwaitedPeer } from '../../api/progress/idle-peers.ts';
import type { CoarseClock } from '../../api/snapshot/summary.ts';
import { PeerConnection } from '../base/peer-connection.ts';
import { SendRequest } from '../base/request/message-request.ts';
import { type Request, RequestState } from '../base/request/request.ts';
import { waitReasonOf } from './request-wait.ts';

/** The parts of a worker that are read. */
interface AwaitingWorker {
  readonly requests: { readonly created: readonly Request[] };
  readonly coarse: CoarseClock;
}

/** One peer for each request that waits for it, in no order. */
export function* awaitedPeers({ requests, coarse }: AwaitingWorker): Generator<AwaitedPeer> {
  for (const request of requests.created) {
    const { connection, startMs } = request;
    // Requests of the protocol itself have no start.
    if (request.state === RequestState.FREE || request.isCompleted || startMs < 0) continue;
    if (!(connection instanceof PeerConnection) || connection.isLoopback) continue;
    const reason = waitReasonOf(request);
    if (reason === 'transport') continue;
    yield {
      id: connection.peerWorkerId,
      shownId: Buffer.from(connection.peerWorkerId, 'latin1').toString('hex'),
      isManual: connection.isPeerManual,
      // A message may wait for its receive.
      owesAnswer: reason === 'connection' || (reason === 'peer' && !(request instanceof SendRequest)),
      place: connection.am?.peerPlace,
      ageMs: coarse.nowMs - startMs,
    };
  }
}
