/** The peers that operations of a worker over libucp may wait for, for the warning about idle ones: libucp does not tell what an operation waits for. */

import type { AwaitedPeer } from '../../api/progress/idle-peers.ts';
import { RequestState } from '../request/request.ts';
import type { Requests } from '../request/requests.ts';

/** One peer for each request to it, in no order. */
export function* awaitedPeers({ all, coarse }: Requests): Generator<AwaitedPeer> {
  for (const request of all) {
    if (request === undefined || request.state === RequestState.FREE || request.isCompleted) continue;
    const id = request.endpoint?.peerId ?? '';
    if (id === '') continue;
    const ageMs = coarse.nowMs - request.startMs;
    yield { id, shownId: '', isManual: false, owesAnswer: false, place: undefined, ageMs };
  }
}
