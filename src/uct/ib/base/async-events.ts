/** The asynchronous events of a device: read as they arrive, so that they do not accumulate, and logged. Their owner handles a fatal one. */

import { EventAlarm } from '../../../sys/index.ts';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import { AsyncEventType, asyncEventText } from '../../../verbs/abi.ts';
import type { AsyncEvent } from '../../../verbs/port.ts';
import type { IbDevice } from './ib-device.ts';

/** The events. */
export class AsyncEvents {
  readonly #device: IbDevice;
  readonly #log: LimitedLog;
  readonly #onFatal: () => void;
  readonly #alarm: EventAlarm;

  /** @param onFatal called when the device has failed, and serves nothing any more @throws SyscallError EMFILE */
  constructor(device: IbDevice, log: LimitedLog, onFatal: () => void) {
    this.#device = device;
    this.#log = log;
    this.#onFatal = onFatal;
    this.#alarm = new EventAlarm(device.context.asyncFd, () => this.#read());
    this.#alarm.arm();
  }

  close(): void {
    this.#alarm.close();
  }

  #read(): void {
    const { context } = this.#device;
    for (let event = context.nextAsyncEvent(); event !== undefined; event = context.nextAsyncEvent()) this.#tell(event);
    this.#alarm.arm();
  }

  #tell({ type, element }: AsyncEvent): void {
    const { name } = this.#device;
    const text = asyncEventText(type);
    if (type === AsyncEventType.DEVICE_FATAL) {
      this.#log.warn(`${name}: ${text}`);
      this.#onFatal();
    } else if (type === AsyncEventType.PORT_ERR) this.#log.warn(`${name}:${element}: ${text}`);
    // Peers can cause the other events, such as errors of queue pairs, which the completions of their requests report.
    else this.#log.debug(`${name}: ${text} (${element})`);
  }
}
