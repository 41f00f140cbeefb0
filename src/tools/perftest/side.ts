/** Chooses what a test runs over: an endpoint of UCP or an interface of UCT. The one place that knows all kinds of traffic. */

import type { TestSpec } from './spec.ts';
import type { Traffic } from './traffic.ts';
import { AtomicTraffic, GetTraffic, PutTraffic } from './ucp-access.ts';
import { AmTraffic, StreamTraffic, TagTraffic } from './ucp-messages.ts';
import { type Introduction, UcpSide } from './ucp-side.ts';

/** One side of a test. */
export interface Side {
  /** True when emulated cards take part. */
  readonly emulated: boolean;
  /** What the other side must know. */
  introduce(): Introduction;
  /** Connects to the other side, whose words are checked. */
  connect(peer: Readonly<Record<string, unknown>>): void;
  /** The traffic of the test, after {@link connect}. */
  traffic(): Traffic;
  close(): Promise<void>;
}

/** Opens a side. @throws UcxError: see UcpSide.open */
export async function openSide(spec: TestSpec): Promise<Side> {
  return new UcpTestSide(await UcpSide.open(spec));
}

class UcpTestSide implements Side {
  readonly #side: UcpSide;

  constructor(side: UcpSide) {
    this.#side = side;
  }

  get emulated(): boolean {
    return this.#side.emulated;
  }

  introduce(): Introduction {
    return this.#side.introduce();
  }

  connect(peer: Readonly<Record<string, unknown>>): void {
    this.#side.connect(peer);
  }

  traffic(): Traffic {
    const side = this.#side;
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

  close(): Promise<void> {
    return this.#side.close();
  }
}
