/** Selects the traffic of a test: operations of a UCP endpoint, or of a UCT interface. */

import type { TestSpec } from '../spec.ts';
import type { Hello } from './test-context.ts';
import type { Traffic } from './traffic.ts';
import { AtomicTraffic, GetTraffic, PutTraffic } from './ucp-access.ts';
import { AmTraffic, StreamTraffic, TagTraffic } from './ucp-messages.ts';
import { UcpSide } from './ucp-side.ts';
import { UctSide } from './uct-side.ts';
import { UctAtomicTraffic, UctGetTraffic, UctMessageTraffic, UctPutTraffic } from './uct-traffic.ts';

/** One side of a test. */
export interface Side {
  /** True when emulated cards take part. */
  readonly emulated: boolean;
  /** Addresses and keys for the other side. */
  greet(): Hello;
  /** Connects to the other side; checks its addresses and keys. */
  connect(peer: Readonly<Record<string, unknown>>): void;
  close(): Promise<void>;
}

/** A side, and the traffic of its test, which is available after the connection. */
export interface OpenSide {
  readonly side: Side;
  traffic(): Traffic;
}

/** Opens a side. @throws UcxError: see UcpSide.open, UctSide.open */
export async function openSide(spec: TestSpec): Promise<OpenSide> {
  if (spec.kind.api === 'UCT') {
    const side = await UctSide.open(spec);
    return { side, traffic: () => uctTraffic(side) };
  }
  const side = await UcpSide.open(spec);
  return { side, traffic: () => ucpTraffic(side) };
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
