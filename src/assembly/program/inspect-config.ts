/** The fields for the inspection of a process: its inspect socket, the dump at a signal, the table of transports at the start. */

import type { ConfigTable } from '../../ucs/config/config.ts';
import { listType } from '../../ucs/config/list.ts';
import { type ConfigType, enumType, type Ternary, ternaryAutoType, ternaryType } from '../../ucs/config/value.ts';
import { signalNumber } from '../../ucs/stats/stats-output.ts';

/** A signal, or none. */
export type DebugSignal = NodeJS.Signals | 'none';

/** The values of {@link INSPECT_CONFIG_TABLE}. */
export interface InspectConfig {
  readonly INSPECT: Ternary;
  readonly DEBUG_SIGNO: DebugSignal;
  readonly HANDLE_ERRORS: readonly ErrorHandling[];
  readonly ERROR_SIGNALS: readonly NodeJS.Signals[];
  /** `try` prints it from level info on. */
  readonly PRINT_TRANSPORT_TABLES: Ternary;
}

/** What C UCX does at a fatal signal; only `freeze` can be done here. */
const ERROR_HANDLINGS = ['none', 'bt', 'freeze', 'debug'] as const;
export type ErrorHandling = (typeof ERROR_HANDLINGS)[number];

const NONE = '0';

const fatalSignalType: ConfigType<NodeJS.Signals> = {
  syntax: 'the name or number of a signal other than SIGKILL and SIGSTOP',
  parse: signalNumber,
  print: (value) => value.replace(/^SIG/, ''),
};

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
      name: 'HANDLE_ERRORS',
      type: listType(enumType(ERROR_HANDLINGS)),
      default: 'none',
      doc: 'What happens at a signal of UCX_ERROR_SIGNALS, from the first context on. freeze: the thread waits for a debugger, where the process would end; none, bt, debug: the process ends, as JavaScript can print no backtrace then (node --report-on-fatalerror).',
    },
    {
      name: 'ERROR_SIGNALS',
      type: listType(fatalSignalType),
      default: 'ILL,SEGV,BUS,FPE',
      doc: 'Signals at which UCX_HANDLE_ERRORS acts.',
    },
    {
      name: 'PRINT_TRANSPORT_TABLES',
      type: ternaryAutoType,
      default: 'try',
      doc: 'Log the transports and devices of each new context, and those that are not used, with the reason: y, n, or auto: if UCX_LOG_LEVEL is info or finer.',
    },
  ],
};
