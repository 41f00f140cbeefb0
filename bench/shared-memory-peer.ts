/** The two ends of the shared-memory benchmark: each opens posix in its process, connects over IPC, and runs the same steps. */

import { schedGetAffinity, schedSetAffinity, setParentDeathSignal } from '../src/sys/index.ts';
import { loadConfig } from '../src/ucs/config/config.ts';
import { createLog, LogLevel } from '../src/ucs/debug/log.ts';
import { MemoryType } from '../src/ucs/memory/memory-type.ts';
import { systemClock } from '../src/ucs/sys/clock.ts';
import type { Completion, Iface, UctEndpoint } from '../src/uct/api/iface.ts';
import type { MdMemory, RemoteKey } from '../src/uct/api/memory.ts';
import type { MemoryDomain } from '../src/uct/api/memory-domain.ts';
import { posixComponent } from '../src/uct/shm/posix/md.ts';

const MEBIBYTE = 2 ** 20;
const TURNS = 200_000;
const ROUNDS = 5;

/** Address and key of one end, as text. */
export interface Hello {
  readonly address: string;
  readonly key: string;
}

/** Results: nanoseconds one way, of every round. */
export interface Latencies {
  readonly message: readonly number[];
  readonly put: readonly number[];
}

/** One end. */
export class ShmEnd {
  readonly hello: Hello;
  readonly md: MemoryDomain;
  readonly memory: MdMemory;
  readonly #iface: Iface;
  #received = 0;

  constructor() {
    const component = posixComponent();
    const log = createLog('bench', LogLevel.WARN, (_level, _component, message) => console.error(message));
    this.md = component.openMd({ log, clock: systemClock, config: loadConfig([component.configTable!]) });
    this.#iface = this.md.openIface(this.md.resources[0]!);
    this.#iface.setAmHandler(() => {
      this.#received += 1;
    });
    this.memory = this.md.memAlloc(MEBIBYTE, { memoryType: MemoryType.HOST });
    const key = new Uint8Array(this.md.attributes.rkeyPackedBytes);
    this.md.mkeyPack(this.memory, key, 0);
    this.hello = { address: hexOf(this.#iface.address), key: hexOf(key) };
  }

  connect({ address, key }: Hello): { readonly endpoint: UctEndpoint; readonly rkey: RemoteKey } {
    return {
      endpoint: this.#iface.connect(Buffer.from(address, 'hex')),
      rkey: this.md.rkeyUnpack(Buffer.from(key, 'hex')),
    };
  }

  /** Runs both measurements with the other end, which calls this at the same time. */
  pingPong(peer: Hello, isFirst: boolean): Latencies {
    const { endpoint, rkey } = this.connect(peer);
    const message = this.#rounds(() => this.#messages(endpoint, isFirst));
    const put = this.#rounds(() => this.#puts(endpoint, rkey, isFirst));
    endpoint.close();
    return { message, put };
  }

  #rounds(run: () => void): number[] {
    return Array.from({ length: ROUNDS }, () => {
      const begin = process.hrtime.bigint();
      run();
      return Number(process.hrtime.bigint() - begin) / TURNS / 2;
    });
  }

  #messages(endpoint: UctEndpoint, isFirst: boolean): void {
    const header = Int32Array.of(1, 2);
    for (let i = 0; i < TURNS; i++) {
      if (isFirst) while (endpoint.amShort(1, header, 2, undefined, 0, 0) !== 0);
      const before = this.#received;
      while (this.#received === before) this.#iface.progress();
      if (!isFirst) while (endpoint.amShort(1, header, 2, undefined, 0, 0) !== 0);
    }
  }

  #puts(endpoint: UctEndpoint, rkey: RemoteKey, isFirst: boolean): void {
    const bytes = this.memory.bytes!;
    const source = new Uint8Array(8);
    for (let i = 0; i < TURNS; i++) {
      const mark = (i % 200) + 1;
      source[7] = mark;
      if (!isFirst) while (bytes[7] !== mark);
      endpoint.putShort(source, 0, 8, 0, rkey);
      if (isFirst) while (bytes[7] !== mark);
    }
  }

  close(): void {
    this.md.close();
  }
}

/** Pins this process to one CPU, if there are two. */
export function pin(position: number): void {
  const cpus = schedGetAffinity(0);
  if (cpus.length > 1) schedSetAffinity(0, [cpus[position % cpus.length]!]);
}

function hexOf(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

/** A completion for operations that end at once. */
export const NEVER: Completion = { count: 1, failure: 0, onComplete: () => undefined };

/** Run as the other process. */
if (process.argv[2] === 'shared-memory-peer') {
  setParentDeathSignal();
  pin(1);
  const end = new ShmEnd();
  process.on('message', (peer: Hello) => {
    end.pingPong(peer, false);
    process.send?.('done');
  });
  process.on('disconnect', () => end.close());
  process.send?.(end.hello);
}
