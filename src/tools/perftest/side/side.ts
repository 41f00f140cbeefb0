/** Selects the traffic of a test: operations of a UCP endpoint, or of a UCT interface. */

import type { TestSpec } from '../spec.ts';
import type { Traffic } from './traffic.ts';
import { AtomicTraffic, GetTraffic, PutTraffic } from './ucp-access.ts';
import { AmTraffic, StreamTraffic, TagTraffic } from './ucp-messages.ts';
import { UcpSide } from './ucp-side.ts';
import { UctSide } from './uct-side.ts';
import { UctAtomicTraffic, UctGetTraffic, UctMessageTraffic, UctPutTraffic } from './uct-traffic.ts';

/** One side of a test. */
export type Side = UcpSide | UctSide;

/** Opens a side. @throws UcxError: see UcpSide.open, UctSide.open */
export function openSide(spec: TestSpec): Promise<Side> {
  return spec.kind.api === 'UCT' ? UctSide.open(spec) : UcpSide.open(spec);
}

/** The traffic of the test for a connected side. */
export function openTraffic(side: Side): Traffic {
  return side instanceof UctSide ? uctTraffic(side) : ucpTraffic(side);
}

function ucpTraffic(side: UcpSide): Traffic {
  switch (side.spec.kind.operation) {
    case 'put':
      return new PutTraffic(side);
    case 'get':
      return new GetTraffic(side);
    case 'am':
      return new AmTraffic(side);
    case 'stream':
      return new StreamTraffic(side);
    case 'tag':
    case 'tag_sync':
      return new TagTraffic(side);
    default:
      return new AtomicTraffic(side);
  }
}

function uctTraffic(side: UctSide): Traffic {
  switch (side.spec.kind.operation) {
    case 'am':
      return new UctMessageTraffic(side);
    case 'put':
      return new UctPutTraffic(side);
    case 'get':
      return new UctGetTraffic(side);
    default:
      return new UctAtomicTraffic(side);
  }
}
