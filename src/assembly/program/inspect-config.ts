/** The fields for the inspection of a process: its inspect socket, the dump at a signal, the table of transports at the start. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import { type ConfigType, type Ternary, ternaryAutoType, ternaryType } from '../../ucs/config/value.ts';
import { signalNumber } from '../../ucs/stats/stats-trigger.ts';

/** A signal, or none. */
export type DebugSignal = NodeJS.Signals | 'none';

/** The values of {@link INSPECT_CONFIG_TABLE}. */
export interface InspectConfig {
  readonly INSPECT: Ternary;
  readonly DEBUG_SIGNO: DebugSignal;
  /** `try` prints it from level info on. */
  readonly PRINT_TRANSPORT_TABLES: Ternary;
}

const NONE = '0';

const signalType: ConfigType<DebugSignal> = {
  syntax: '0 for none, or the name or number of a signal other than SIGKILL and SIGSTOP',
  parse(text) {
    if (text.trim() === NONE) return 'none';
    return signalNumber(text);
  },
  print: (value) => (value === 'none' ? NONE : value),
};

/** `UCX_INSPECT`, `UCX_DEBUG_SIGNO`, `UCX_PRINT_TRANSPORT_TABLES`. */
export const INSPECT_CONFIG_TABLE: ConfigTable<InspectConfig> = {
  prefix: '',
  fields: [
    {
      name: 'INSPECT',
      type: ternaryType,
      default: 'try',
      doc: 'Serve a socket in the runtime directory, for this user only, by which gaudi-ucx inspect and gaudi-ucx metrics show what this process does: y, or fail; n; try: unless it cannot be made.',
    },
    {
      name: 'DEBUG_SIGNO',
      type: signalType,
      default: NONE,
      doc: 'Signal at which the process logs the same, when its event loop runs; 0 for none. The signal then no longer ends the process. It works for contexts of the main thread only; others warn.',
    },
    {
      name: 'PRINT_TRANSPORT_TABLES',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Log the transports and devices of each new context, and those that are not used, with the reason: y, n, or auto: if UCX_LOG_LEVEL is info or finer.',
    },
  ],
};
