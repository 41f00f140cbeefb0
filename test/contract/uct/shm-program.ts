/** The other process of shm-processes.test.ts: opens posix and cma, and answers its requests. Not a test. */

import { WordOperation } from '../../../src/api/operation/word-operation.ts';
import { schedYield } from '../../../src/sys/index.ts';
import { loadConfig } from '../../../src/ucs/config/config.ts';
import { createLog, LogLevel } from '../../../src/ucs/debug/log.ts';
import { MemoryType } from '../../../src/ucs/memory/memory-type.ts';
import { systemClock } from '../../../src/ucs/sys/clock.ts';
import { Status } from '../../../src/ucs/type/status.ts';
import { AtomicOperation } from '../../../src/uct/api/iface.ts';
import { cmaComponent } from '../../../src/uct/shm/cma/md.ts';
import { posixComponent } from '../../../src/uct/shm/posix/md.ts';
import { answerRequests, report } from '../../fixtures/processes/child-side.ts';

/** Requests of the parent. */
export type ShmRequest =
  | { readonly do: 'hello' }
  | { readonly do: 'echo'; readonly address: string }
  | { readonly do: 'send'; readonly address: string; readonly count: number }
  | { readonly do: 'add'; readonly key: string; readonly count: number }
  | { readonly do: 'sleep' }
  | { readonly do: 'free' };

/** An answer; its fields depend on the request. `sleep` is answered at its start, and reports when it is woken. */
export interface ShmAnswer {
  /** Addresses of the interfaces, and keys of their memory, in hexadecimal. */
  readonly posix?: string;
  readonly cma?: string;
  readonly key?: string;
  readonly cmaKey?: string;
  readonly sent?: number;
  /** Messages that had been received at the end of the sleep. */
  readonly woke?: number;
  /** Whether the memory of cma was unchanged. */
  readonly isUnchanged?: boolean;
}

const BYTES = 65536;
const log = createLog('child', LogLevel.WARN, (_level, _component, message) => console.error(message));
const [posix, cma] = [posixComponent(), cmaComponent()].map((component) =>
  component.openMd({ log, clock: systemClock, config: loadConfig([component.configTable!]) }),
);
const iface = posix!.openIface(posix!.resources[0]!);
const cmaIface = cma!.openIface(cma!.resources[0]!);
const memory = posix!.memAlloc(BYTES, { memoryType: MemoryType.HOST });
const registered = cma!.memReg(new Uint8Array(BYTES).fill(0x5a));
let received = 0;
let stopped = false;

function keyOf(md: typeof posix, of: typeof memory): string {
  const packed = new Uint8Array(md!.attributes.rkeyPackedBytes);
  md!.mkeyPack(of, packed, 0);
  return Buffer.from(packed).toString('hex');
}

iface.setAmHandler(() => {
  received += 1;
});

async function drive(): Promise<void> {
  while (!stopped) if (iface.progress() === 0) await iface.wait(1e9);
}

function answer(command: ShmRequest): ShmAnswer {
  switch (command.do) {
    case 'hello':
      memory.bytes!.fill(0);
      return {
        posix: Buffer.from(iface.address).toString('hex'),
        cma: Buffer.from(cmaIface.address).toString('hex'),
        key: keyOf(posix, memory),
        cmaKey: keyOf(cma, registered),
      };
    case 'echo': {
      const endpoint = iface.connect(Buffer.from(command.address, 'hex'));
      iface.setAmHandler((id, { bytes, offset, byteLength }) => {
        const copy = bytes.slice(offset, offset + byteLength);
        const send = (): void => {
          if (endpoint.amShort(id, new Int32Array(0), 0, copy, 0, byteLength) === Status.NO_RESOURCE)
            setImmediate(send);
        };
        send();
      });
      void drive();
      return {};
    }
    case 'send': {
      const endpoint = iface.connect(Buffer.from(command.address, 'hex'));
      for (let i = 0; i < command.count; i++) {
        while (endpoint.amShort(1, Int32Array.of(i, ~i), 2, undefined, 0, 0) === Status.NO_RESOURCE) schedYield();
      }
      return { sent: command.count };
    }
    case 'add': {
      const rkey = posix!.rkeyUnpack(Buffer.from(command.key, 'hex'));
      const endpoint = iface.connect(iface.address);
      const completion = { count: 1, failure: Status.OK, onComplete: () => undefined };
      for (let i = 0; i < command.count; i++) {
        for (const [wordBytes, at] of [[4, 0] as const, [8, 8] as const]) {
          const call = WordOperation.of(AtomicOperation.ADD, wordBytes, 1n, 0n);
          if (endpoint.atomic(call, at, rkey, completion) !== Status.OK) throw new Error('atomic');
        }
      }
      return {};
    }
    case 'sleep': {
      const before = received;
      void (async () => {
        while (received === before) if (iface.progress() === 0) await iface.wait(1e12);
        report<ShmAnswer>({ woke: received });
      })();
      return {};
    }
    case 'free':
      stopped = true;
      posix!.memFree(memory);
      cma!.memDereg(registered);
      return { isUnchanged: registered.bytes!.every((byte) => byte === 0x5a) };
  }
}

process.on('disconnect', () => {
  stopped = true;
  posix!.close();
  cma!.close();
});
answerRequests(answer, {});
